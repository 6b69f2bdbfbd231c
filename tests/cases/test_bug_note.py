"""The bug note replayed (docs/bug-note.md): a tiny Qwen3-MoE whose attention scales are in each of the states that the note is about, in both
dialects. Of each: what doctor says, what run, eval and trace do, and what the three remedies change. Expected numbers are those of docs/nvfp4.md
section 4 (its tables are for Gaussian data, and so are these models) and arithmetic on the scales.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from . import bug_note, fixture
from .bug_note import AMAX, ATTENTION, OTHERS
from .conftest import BIN, ROOT

STATIC = ("--policy-b", "a4:static")
BF16_ATTENTION = ("--policy-b", "a4:static", "--policy-b", "model.layers.*.self_attn.*=a16,weights=bf16")
# nvfp4.md 4.1, column gauss: log2 r -> dB of the activations; 4.3: a linear of K = 1024.
TABLE = {4: 2.09, 3: 4.38, 2: 9.57, 0: 20.38}
W4A16_DB, W4A4_DB = 20.0, 17.2
REFUSED = {"zeros": "C3 bad-scalar-scale", "nan": "C3 bad-scalar-scale", "denormal": "C3 bad-scalar-scale",
           "missing": "C15 missing-input-scale", "reciprocal-all": "P10 convention-contradicts-names"}
FOUND = {"right": {}, "other-data": {}, "reciprocal": {"C11": "warning"}, "reciprocal-all": {"C11": "warning", "P10": "error"},
         "zeros": {"C3": "error"}, "nan": {"C3": "error"}, "denormal": {"C3": "error"}, "missing": {"C15": "error"}, "cast": {"C1": "error"},
         "experts": {}}
RUNS = [state for state in bug_note.STATES if state not in ("cast", "experts")]


class Note:
    def __init__(self, sextant, at, dialect):
        self.sextant, self.at, self.dialect, self.scales = sextant, at, dialect, {}
        self.weights, self.amax = bug_note.write_all(BIN, at, dialect)
        self.ids = at / "ids.json"
        self.input_name = bug_note.DIALECTS[dialect][2]

    def compared(self, a, b, *options, status=0):
        return self.sextant.json("compare", self.at / a, self.at / b, "--ids", self.ids, *options, status=status)

    def traced(self, state, *options, status=0):
        return self.sextant.json("trace", self.at / state, "--ids", self.ids, *options, status=status)

    def warmed(self, state):
        """Options of the note's first remedy: scales measured on text."""
        if state not in self.scales:
            file = self.at / f"{state}.scales.json"
            done = self.sextant("calibrate", self.at / state, "--ids", self.ids, "-o", file)
            assert done.returncode == 0, done.stderr
            self.scales[state] = file, done.stderr
        return "--policy-b", "a4:warmup", "--input-scales", self.scales[state][0]


@pytest.fixture(scope="module", params=bug_note.DIALECTS)
def note(sextant, tmp_path_factory, request):
    return Note(sextant, tmp_path_factory.mktemp("note"), request.param)


def taps(document, name, stage="0"):
    return [tap for s in document["stages"] if s["stage"] == stage for tap in s["taps"] if tap["tap"] == name]


def decibels(document, name="q"):
    """SNR of B against A at layer 0."""
    tap, = taps(document, name)
    return -20 * math.log10(tap["relative_l2"])


def kl(document):
    return document["end"]["mean_kl"]


def input_of(document, module):
    return next(tap for tap in document["taps"] if tap["tap"] == "input" and tap["module"] == module)


Q = "model.layers.0.self_attn.q_proj"


# ------------------------------------------------------------------ symptoms

@pytest.mark.parametrize("state", bug_note.STATES)
def test_what_doctor_says(sextant, note, state):
    done = sextant("doctor", note.at / state, "--json")
    found = {f["id"]: f["severity"] for f in json.loads(done.stdout)["findings"] if f["severity"] != "note"}
    assert found == FOUND[state]
    assert done.returncode == (2 if "error" in found.values() else 0)


@pytest.mark.parametrize("state", REFUSED)
def test_what_static_scales_refuse(sextant, note, state):
    for command in (("trace", note.at / state, "--ids", note.ids), ("eval", note.at / state, "--ids", note.ids),
                    ("compare", note.at / "bf16", note.at / state, "--ids", note.ids)):
        status, text = sextant.refused(*command, "--policy", "a4:static")
        assert status == 2 and f"[{REFUSED[state]}]" in text and ("input" in text), text
    if state != "reciprocal-all":
        assert f".{note.input_name}'" in text  # the tensor


@pytest.mark.parametrize("state", RUNS)
def test_without_activation_scales_every_state_is_finite_and_the_same(note, state):
    """Weights are right in all of these: a16 gives the very numbers of the right checkpoint."""
    document = note.compared("right", state)
    assert document["verdict"] == "identical"
    assert note.traced(state)["verdict"] == "finite"


def test_the_number_of_the_note_is_healthy(note):
    """input_scale 0.00025141, G 3977.6: finite, r just below 1, no alarm of attention, and the format's 20.38 dB."""
    scale = np.frombuffer(fixture.read(note.at / "right/model.safetensors")[f"{Q}.{note.input_name}"][2], "<f4")[0]
    assert f"{scale:.8f}" == "0.00025141" if note.dialect == "modelopt" else f"{scale:.1f}" == "3977.6"
    document = note.traced("right", "--policy", "a4:static")
    assert document["verdict"] == "finite" and document["dead"] == []
    seen = input_of(document, Q)["input"]
    assert seen["calibrated_amax"] == pytest.approx(AMAX, rel=1e-6) and 0.98 < seen["ratio"] <= 1 and seen["clipped"] == 0
    assert not [alarm for alarm in document["alarms"] if alarm["module"] == Q]
    assert decibels(note.compared("right", "right", *STATIC)) == pytest.approx(TABLE[0], abs=0.3)
    assert decibels(note.compared("bf16", "right", *STATIC)) == pytest.approx(W4A4_DB, abs=0.4)


def test_calibrated_on_other_data_saturates_and_is_finite(note):
    document = note.traced("other-data", "--policy", "a4:static")
    assert document["verdict"] == "finite" and document["dead"] == []
    tap = input_of(document, Q)
    assert tap["input"]["ratio"] == pytest.approx(OTHERS, rel=0.02) and tap["input"]["saturated_blocks"] > 0.99
    sigma = bug_note.attention_input_sigma(note.weights)  # Gaussian: the share beyond 6.5 / 6 of the amax that the scale is for
    assert tap["input"]["clipped"] == pytest.approx(math.erfc(6.5 / 6 * AMAX / OTHERS / sigma / math.sqrt(2)), abs=0.01)
    of_q = {alarm["quantity"]: alarm["severity"] for alarm in document["alarms"] if alarm["module"] == Q}
    assert of_q == {"ratio": "error", "clipped": "warning"}
    assert decibels(note.compared("right", "other-data", *STATIC)) == pytest.approx(TABLE[3], abs=0.3)
    document = note.compared("bf16", "other-data", *STATIC)
    assert document["verdict"] == "diverges" and f"{Q}.{note.input_name}" in document["first_divergence"]["cause"]["tensors"]


def test_a_divisor_read_as_a_multiplier_is_exact_zeros_and_finite(note):
    """g = 3977.6: a block scale e4m3(b / (6 g)) is 0 up to b = 6 * 2^-10 * 3977.6 = 23.31, and no input comes near that."""
    document = note.traced("reciprocal", "--policy", "a4:static")
    assert document["verdict"] == "finite"
    seen = input_of(document, Q)
    assert seen["amax"] < 23.31 and seen["input"]["zero_blocks"] == 1 and seen["input"]["underflowed"] == 1
    assert seen["input"]["ratio"] == pytest.approx(seen["amax"] * 2.51406e-4 / 2688, rel=1e-4)
    for tap in document["taps"]:
        if tap["tap"] in ("q", "k", "v", "o"):
            assert tap["amax"] == 0 and tap["nan"] == tap["inf"] == 0
    dead = next(dead for dead in document["dead"] if dead["module"] == Q)
    assert dead["cause"]["kind"] == "input-scale" and dead["cause"]["tensor"] == f"{Q}.{note.input_name}"
    assert "up to 23.31 become zero" in dead["cause"]["message"]
    of_q = {alarm["quantity"] for alarm in document["alarms"] if alarm["module"] == Q}
    assert of_q == {"ratio", "zero-blocks"}
    document = note.compared("bf16", "reciprocal", *STATIC)
    q, = taps(document, "q")
    assert q["relative_l2"] == 1 and q["bad_b"] == 0  # 0 dB
    assert document["verdict"] == "diverges" and document["first_divergence"]["cause"]["kind"] == "input-scale"


def test_a_cast_without_saturation_is_nan_in_the_very_projection(sextant, note):
    """Block scales 0x7F: the only one of these states that is NaN under every policy, and the first bad tap is q of layer 0."""
    scales = fixture.read(note.at / "cast/model.safetensors")[f"{Q}.weight_scale"]
    table = np.frombuffer(scales[2], np.uint8).reshape(scales[1])
    # By how much a scale is too small, and where the cast gives up: more than 464 / 448 of it [1.2, 4.2].
    w = np.abs(note.weights[Q + ".weight"]).reshape(*table.shape, 16).max(-1)
    assert ((table == 0x7F) == (w > w.max() / bug_note.SHRUNK * 464 / 448)).all() and (table == 0x7F).any()
    row, group = np.argwhere(table == 0x7F)[0]
    for policy in ("a16", "a4:static", "a16,weights=bf16"):
        status, text = sextant.refused("trace", note.at / "cast", "--ids", note.ids, "--policy", policy)
        assert status == 2 and "[C1 nan-block-scale]" in text and "0x7F" in text
        bad = note.traced("cast", "--policy", policy, "--allow", "C1", status=2)["first_bad"]
        assert (bad["tap"], bad["layer"], bad["module"], bad["column"]) == ("q", 0, Q, row)
        assert bad["cause"]["kind"] == "scale" and bad["cause"]["tensor"] == Q + ".weight_scale" and bad["cause"]["index"] == [row, group]
    status, text = sextant.refused("calibrate", note.at / "cast", "--ids", note.ids, "--allow", "C1", "-o", note.at / "cast.scales.json")
    assert status == 2 and "not finite" in text and "first bad tensor: q of layer 0" in text  # warming up changes nothing either


# ------------------------------------------------------------------ remedies

def test_what_each_state_costs(note):
    """In KL against the BF16 original: attention that saturates costs more than the format, attention that is zero still more."""
    costs = [kl(note.compared("bf16", state, *STATIC)) for state in ("right", "other-data", "reciprocal")]
    assert 0.02 < costs[0] and 2 * costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("state", RUNS)
def test_remedy_1_warm_up(note, state):
    """Whatever the file has, measured scales reach the format's own noise: what the right file has without them (remedy 3), and no more."""
    document, right = note.compared("bf16", state, *note.warmed(state)), note.compared("bf16", "right", *STATIC)
    assert document["verdict"] == "explained"
    assert decibels(document) == pytest.approx(W4A4_DB, abs=0.4) and decibels(document) == pytest.approx(decibels(right), abs=0.1)
    assert decibels(note.compared("right", state, *note.warmed(state))) == pytest.approx(TABLE[0], abs=0.3)
    assert kl(document) == pytest.approx(kl(right), rel=0.15)
    # A stored divisor stands for more than any measured amax: it must not be kept as the larger one.
    warned = "as if written in the other convention" in note.scales[state][1]
    assert warned == state.startswith("reciprocal")


@pytest.mark.parametrize("state", [state for state in RUNS if state != "reciprocal-all"])
def test_remedy_2_attention_in_bf16(sextant, note, state):
    """Broken scales of linears that take BF16 refuse nothing; the error is that of the weights alone."""
    document, right = note.compared("bf16", state, *BF16_ATTENTION), note.compared("bf16", "right", *STATIC)
    assert document["verdict"] == "explained" and decibels(document) == pytest.approx(W4A16_DB, abs=0.6)
    assert kl(document) < kl(right)
    plan = sextant.json("explain", note.at / state, "--policy", "a4:static", "--policy", "model.layers.*.self_attn.*=a16,weights=bf16")
    assert {p["weights"] for p in plan["linears"] if p["module"] in ATTENTION} == {"bf16"}


# ------------------------------------------------------------------ the format's own noise, and no more

def test_w4a4_reaches_the_noise_of_the_format(note):
    """nvfp4.md 4.3 and 6.2: a linear has a cosine of 0.9904 to BF16, a SwiGLU MLP 0.967, and 0.985 to the same dequantized weights. 0.9985 would
    be less noise than 4-bit weights alone make (0.995)."""
    to_bf16 = note.compared("bf16", "right", *note.warmed("right"))
    for name in ("q", "k", "v"):
        tap, = taps(to_bf16, name)
        assert 0.988 <= tap["cosine"] < 0.9985 and 0.98 < tap["rms_ratio"] < 1.02
    # Attention in BF16, so that the experts' inputs and the choice of experts are those of the original.
    to_bf16 = note.compared("bf16", "experts", *note.warmed("experts"))
    same = note.compared("experts", "experts", "--policy-a", "f32", "--policy-b", "f32", "--policy-b", "*.experts.*=a4:warmup",
                         *note.warmed("experts")[2:])
    for stage in ("0", "1"):
        for name, low, low_same in (("gate", 0.988, 0.995), ("up", 0.988, 0.995), ("down", 0.96, 0.98), ("moe_out", 0.96, 0.98)):
            found, found_same = taps(to_bf16, name, stage), taps(same, name, stage)
            assert len(found) == len(found_same) == (1 if name == "moe_out" else bug_note.EXPERTS)
            for tap, other in zip(found, found_same):
                assert low <= tap["cosine"] < 0.9985 and low_same <= other["cosine"] < 0.9985, (stage, name, tap["cosine"], other["cosine"])
                assert 0.97 < tap["rms_ratio"] < 1.03
    assert to_bf16["verdict"] == same["verdict"] == "explained"


# ------------------------------------------------------------------ docs/bug-note.md

def commands_of(text):
    """(command, status) of every line of the shell blocks; "# status N" says that it is not 0."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            status = re.search(r"# status (\d)", line)
            if not line.startswith("#"):
                yield line.split("  #")[0].strip(), int(status.group(1)) if status else 0


def test_the_walk_through_runs_as_printed(sextant, tmp_path):
    commands = list(commands_of((ROOT / "docs/bug-note.md").read_text()))
    assert len(commands) > 10
    shutil.copytree(ROOT / "tests/cases", tmp_path / "tests/cases", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sextant").symlink_to(BIN)
    environment = sextant.environment | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SEXTANT_BIN": str(BIN)}
    for command, status in commands:
        command = re.sub(r"\.venv-test/bin/python", sys.executable, command)
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, (command, done.returncode, done.stdout[-500:], done.stderr[-500:])
