"""No crying wolf: sound checkpoints have neither errors nor warnings."""
import os
import pathlib
import shutil

import numpy as np
import pytest

from . import arithmetic, models
from .conftest import ROOT

GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN", ROOT / "tests/golden")).resolve()
FULL = ROOT.parent / "shared" / "golden"  # beside a checkout, as ./test uses it

# What golden checkpoints have on purpose: directory -> {(id, slug, severity): why it is right to say so}.
INTENDED = {
    "modelopt-qwen3-moe": {
        ("C15", "missing-input-scale", "error"): "expert 2 of layer 1 was made without input scales, in a file that declares them"},
    "deepseek_v4_nvfp4_nv": {
        ("C18", "index-lacks-tensor", "warning"): "the index was made without the names of the scales, as ModelOpt's DeepSeek script does"},
}


def golden_directories():
    places = {path.resolve() for place in (GOLDEN, FULL) if place.is_dir() for path in place.iterdir() if (path / "config.json").exists()}
    return sorted(places)


@pytest.mark.parametrize("path", golden_directories(), ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_golden_models_have_no_errors_and_no_warnings(sextant, path):
    report = sextant.doctor(path)
    intended = INTENDED.get(path.name, {})
    found = {(f["id"], f["slug"], f["severity"]) for f in report.of("error", "warning")}
    assert found == set(intended), report.lines()


def test_what_is_intended_is_about_directories_that_exist():
    if FULL.is_dir():
        assert set(INTENDED) <= {path.name for path in golden_directories()}


N_MODELS, BATCH, LARGE_EVERY = 50, 10, 8


@pytest.mark.parametrize("first", range(0, N_MODELS, BATCH))
@pytest.mark.parametrize("dialect", models.DIALECTS)
def test_random_models_are_healthy(sextant, tmp_path, dialect, first):
    wolves = []
    for seed in range(first, first + BATCH):
        at = tmp_path / str(seed)
        models.fixture.write_files(at, models.healthy_files(dialect, [models.DIALECTS.index(dialect), seed], large=seed % LARGE_EVERY == 0))
        report = sextant.doctor(at, "--strict")
        if report.status != 0:
            wolves.append(f"seed {seed}: " + "; ".join(report.lines()))
        shutil.rmtree(at)
    assert not wolves, f"{len(wolves)} of {BATCH}:\n" + "\n".join(wolves)


def test_large_models_hold_enough_codes_for_statistics():
    for seed in range(0, N_MODELS, LARGE_EVERY):
        model = models.random_model([0, seed], large=True)
        assert sum(model.weights[module + ".weight"].size >= 100_000 for module in model.linears) >= 3


@pytest.mark.parametrize("dialect", models.DIALECTS)
def test_random_models_run(sextant, tmp_path, dialect):
    """They are models, not only files: finite logits of a plausible perplexity."""
    (tmp_path / "ids").write_text(" ".join(str(i % 40) for i in range(1, 60, 7)))
    for seed in (1, 2):
        at = models.fixture.write_files(tmp_path / str(seed), models.healthy_files(dialect, [models.DIALECTS.index(dialect), seed]))
        assert 1 < sextant.json("eval", at, "--ids", tmp_path / "ids", "--window", 64, "--policy", "f32")["perplexity"] < 1e6


# The generator's own arithmetic, against values by hand and the vectors of docs/nvfp4.md section 8.

def test_e4m3():
    tiny = 2.0 ** -9
    values = {0.0: 0, tiny / 2: 0, tiny * 0.501: 1, tiny: 1, 1.5 * tiny: 2, 2.5 * tiny: 2, 7.5 * tiny: 8, 8 * tiny: 8, 0.125: 0x20,
              1.0: 0x38, 1.0625: 0x38, 1.1875: 0x3A, 17.0: 0x58, 19.0: 0x5A, 240.0: 0x77, 248.0: 0x78, 256.0: 0x78, 432.0: 0x7E,
              448.0: 0x7E, 464.0: 0x7E, 1e9: 0x7E, -1.0: 0xB8}
    assert arithmetic.e4m3_encode(np.array(list(values))).tolist() == list(values.values())
    assert arithmetic.e4m3_encode(arithmetic.E4M3).tolist() == list(range(127))


P = [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 5.5, 6]


@pytest.mark.parametrize("quantize, x, scale, codes", [
    (arithmetic.nvfp4_d, [0] * 16, 0x38, "00" * 8),  # V7
    (arithmetic.nvfp4_c, [0] * 16, 0x20, "00" * 8),  # V6
    (arithmetic.nvfp4_d, P, 0x38, "0021224344656677"),  # V1: where ties go
    (arithmetic.nvfp4_c, P, 0x38, "0021224344656677"),
    (arithmetic.nvfp4_d, [-0.0, -0.001, -0.2, 6] + [0] * 12, 0x38, "8078000000000000"),  # V39
    (arithmetic.nvfp4_c, [-0.0, -0.001, -0.2, 6] + [0] * 12, 0x38, "8078000000000000"),  # V40
])
def test_weight_quantizers(quantize, x, scale, codes):
    packed, scales, g = quantize(np.array([x]), 2688.0)
    assert (g, scales.tolist(), packed.tobytes().hex()) == (1, [[scale]], codes)
