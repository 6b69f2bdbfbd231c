"""Calibration of the real model: the amax of all 210 inputs over the twelve prompts is what transformers had in float32
(tests/golden/smollm2/input_scales.json)."""
import json
import subprocess

import pytest

from smollm2 import GOLDEN, PROGRAM, PROMPTS


def calibrated(model, out, *arguments):
    done = subprocess.run([PROGRAM, "calibrate", str(model), *map(str, arguments), "-o", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


def test_amax_of_every_linear(source, tmp_path):
    golden = json.loads((GOLDEN / "input_scales.json").read_text(encoding="utf-8"))["g"]
    amax = dict.fromkeys(golden, 0.0)
    for prompt in PROMPTS:
        if len(prompt["ids"]) < 2:
            continue  # no window; its token is the first of another prompt
        ids = tmp_path / "ids.json"
        ids.write_text(json.dumps(prompt["ids"]))
        modules = calibrated(source, tmp_path / "scales.json", "--ids", ids, "--window", 8192, "--policy", "f32", "--headroom", 1)["modules"]
        for module in amax:
            assert modules[module]["measured"]["rows"] == len(prompt["ids"])
            assert modules[module]["g"] == pytest.approx(modules[module]["measured"]["amax"] / 2688, rel=1e-7)
            amax[module] = max(amax[module], modules[module]["measured"]["amax"])
    assert len(golden) == 210
    for module, g in golden.items():
        assert amax[module] / 2688 == pytest.approx(g, rel=1e-4), module


def test_builtin_text_covers_the_golden_prompts(source, tmp_path):
    """With its headroom the builtin text's scales clip nothing of prompts that it does not know."""
    golden = json.loads((GOLDEN / "input_scales.json").read_text(encoding="utf-8"))["g"]
    document = calibrated(source, tmp_path / "scales.json", "--text", "builtin")
    assert document["text"]["sequences"] == 44 and document["unreached"] == []
    for module, g in golden.items():
        assert document["modules"][module]["g"] >= g, module
