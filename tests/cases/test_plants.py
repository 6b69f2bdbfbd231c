"""Every planted fault is found by doctor (an error or a warning, or it cannot be opened) or changes nothing.

Nothing changes means: under --policy f32 the same distribution at every position of given ids, to the last bit of what eval prints (sums of
negative log-likelihoods, and the divergence from the original, which is 0 at every position only where the logits are equal).

What a fault can become:
  found         doctor names it
  harmless      not found, and the numbers are those of the original (input scales count here: weights-only running ignores them)
  unsupported   not found, but running refuses the model as one that it does not support (status 4): no wrong number comes out
  undetectable  plausible (see plants.py) and without the original nothing can tell; `doctor --against ORIGINAL` has to
  missed        none of these: a fault of doctor
  false alarms  doctor named an error although the model runs and nothing changed, or named anything in what is benign
The table is printed at the end of the tests. --plants N plants N of them in place of 300.
"""
import json
import shutil

import numpy as np
import pytest

from . import fixture, plants

CHUNKS = 4
COLUMNS = ["planted", "found", "harmless", "unsupported", "undetectable", "missed", "false alarms"]


class Ground:
    """A healthy checkpoint on disk, and faults written beside it."""

    def __init__(self, sextant, at, name):
        self.sextant, self.at, self.base = sextant, at, plants.base_of(name)
        self.original = fixture.write_files(at / "original", self.base.files)
        self.ids = at / "ids"
        # Every id of the vocabulary twice, so that each is an input before the last of a window, in two orders.
        vocab, rng = json.loads(self.base.files[plants.CONFIG])["vocab_size"], np.random.default_rng(0)
        self.ids.write_text(" ".join(map(str, [*rng.permutation(vocab), *rng.permutation(vocab)])))
        assert sextant.doctor(self.original, "--strict").status == 0
        status, self.sums = self.run(self.original)
        assert status == 0

    def write(self, plant):
        shutil.rmtree(self.at / "planted", ignore_errors=True)
        return fixture.write_files(self.at / "planted", plant.files)

    def run(self, model):
        done = self.sextant("eval", model, "--ids", self.ids, "--window", 24, "--policy", "f32", "--json", "-j", 1,
                            "--against", self.original)
        if done.returncode != 0:
            return done.returncode, None
        answer = json.loads(done.stdout)
        against = answer["against"]
        return 0, (answer["window_nll_sum"], against["max_kl"], against["mean_kl"], against["mean_kl_reverse"], against["nll"])

    def becomes(self, plant):
        """The columns that a plant counts in."""
        path = self.write(plant)
        report = self.sextant.doctor(path, "-j", 1)
        found = report.of("error", "warning")
        if plant.benign:
            status, sums = self.run(path)
            assert (status, sums) == (0, self.sums), plant.text
            return ["found", "false alarms"] if found else ["harmless"]
        if found and report.verdict != "errors":
            return ["found"]
        status, sums = self.run(path)
        same = status == 0 and sums == self.sums
        if found:
            # An error that concerns only activation scales, running weights-only does not mind.
            is_alarm = same and not any(part in (finding["tensor"] or "") for finding in found for part in plants.OF_INPUTS)
            return ["found", "false alarms"] if is_alarm else ["found"]
        if same:
            return ["harmless"]
        if status == 4:
            return ["unsupported"]
        return ["undetectable"] if plant.plausible and status == 0 else ["missed"]


def numbers(config, chunk):
    total = config.getoption("--plants")
    per_base = -(-total // len(plants.BASES))
    return range(chunk, per_base, CHUNKS)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", plants.BASES)
def test_planted_faults_are_found_or_harmless(sextant, tmp_path, request, record_property, name, chunk):
    ground, kinds, wrong = Ground(sextant, tmp_path, name), {}, []
    for plant in plants.plants_of(ground.base, numbers(request.config, chunk)):
        row = kinds.setdefault(plant.kind, [0] * len(COLUMNS))
        columns = ground.becomes(plant)
        for column in ["planted", *columns]:
            row[COLUMNS.index(column)] += 1
        if "missed" in columns or "false alarms" in columns:
            wrong.append(f"{columns[-1]}: {plant.kind}: {plant.text}")
    record_property("plants", {"columns": COLUMNS, "kinds": kinds})
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", plants.BASES)
def test_what_is_undetectable_is_found_against_the_original(sextant, tmp_path, request, name):
    if not sextant.has_option("doctor", "--against"):
        pytest.skip("doctor --against is not there yet")
    ground, wrong = Ground(sextant, tmp_path, name), []
    assert sextant.doctor(ground.original, "--against", ground.original, "--strict").status == 0
    every = [number for chunk in range(CHUNKS) for number in numbers(request.config, chunk)]
    for plant in plants.plants_of(ground.base, every):
        if not plant.plausible or ground.becomes(plant) != ["undetectable"]:
            continue
        report = sextant.doctor(ground.at / "planted", "--against", ground.original)
        if not report.of("error", "warning"):
            wrong.append(f"{plant.kind}: {plant.text}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", plants.BASES)
def test_plants_are_the_same_every_time_and_change_something(name):
    base = plants.base_of(name)
    first, second = ([(p.kind, p.text) for p in plants.plants_of(base, range(60))] for _ in range(2))
    assert first == second and len(first) == 60
    assert all(plant.files != base.files for plant in plants.plants_of(base, range(60)))
