"""Cases from practice, section 8: what running a model shows. Each test is named after its case."""
import json
import struct

import numpy as np
import pytest

from . import models
from .fixture import modelopt, patched, write


def generated(layers):
    model = models.Model(np.random.default_rng(86), layers=layers)
    return models.as_modelopt(model), {**model.config, **modelopt(["lm_head"])}


def test_C086_first_nan(sextant, tmp_path):
    tensors, config = generated(8)
    name = "model.layers.5.mlp.up_proj.weight_scale"
    columns = tensors[name][1][1]
    tensors[name] = patched(tensors[name], 3 * columns + 1, 0x7F)  # row 3, group 1
    path = write(tmp_path / "m", tensors, config)
    (tmp_path / "ids").write_text("1 2 3 4 5")
    done = sextant("trace", path, "--ids", tmp_path / "ids", "--json", "--allow", f"C1:{name}")
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    bad = report["first_bad"]
    assert (bad["tap"], bad["layer"], bad["module"]) == ("up", 5, "model.layers.5.mlp.up_proj")
    assert bad["cause"]["tensor"] == name and bad["cause"]["index"] == [3, 1]
    # The linter's place of the byte is the same.
    finding = next(f for f in json.loads(sextant("doctor", path, "--json").stdout)["findings"] if f["id"] == "C1")
    assert (finding["tensor"], finding["index"], finding["offset"]) == (name, [3, 1], bad["cause"]["offset"])
    # Earlier layers are clean.
    assert all(tap["nan"] == 0 and tap["inf"] == 0 for tap in report["taps"] if tap["layer"] is not None and 0 <= tap["layer"] < 5)


def test_C089_kl_gate(sextant, tmp_path):
    tensors, config = generated(2)
    name = "model.layers.1.mlp.down_proj.weight_scale_2"
    dtype, shape, raw = tensors[name]
    faulty = {**tensors, name: (dtype, shape, struct.pack("<f", struct.unpack("<f", raw)[0] * 1.25))}
    base, same, bad = (write(tmp_path / at, what, config) for at, what in (("a", tensors), ("same", tensors), ("bad", faulty)))
    (tmp_path / "ids").write_text(" ".join(str(i * 7 % 64) for i in range(512)))
    args = ["--ids", tmp_path / "ids", "--window", 128, "--max-kl", 1e-9]
    def run(*command):
        done = sextant(*command, *args, "--json")
        return done.returncode, json.loads(done.stdout)
    status, report = run("eval", same, "--against", base)
    assert status == 0 and report["against"]["mean_kl"] == 0 == report["against"]["mean_kl_reverse"]
    status, report = run("eval", bad, "--against", base)
    assert status == 1 and report["against"]["mean_kl"] > 1e-9 and report["against"]["worst"]
    # compare says the same, and which tensor it is.
    status, report = run("compare", base, same)
    assert status == 0 and report["verdict"] == "identical"
    status, report = run("compare", base, bad)
    assert status == 1 and report["first_divergence"]["layer"] == 1
    assert report["first_divergence"]["cause"]["tensors"] == [name] and report["first_divergence"]["cause"]["ratio"] == "1.25"
