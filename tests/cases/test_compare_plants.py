"""One fault planted at random in the parameters of a tiny model, a NaN, an infinity or a factor of 1.25 (of one element or of the whole tensor),
then `sextant compare HEALTHY PLANTED`: the first divergence must name the tensor that was changed, or nothing changes: the two are identical at
every tap, and the logits of `trace --write-dump` are bit for bit those of the original. What is missed is printed by kind.

    pytest tests/cases/test_compare_plants.py --compare-plants 500
"""
import json
import shutil

import jsonschema
import numpy as np
import pytest

from . import arithmetic, fixture, models, plants
from .conftest import ROOT
from .test_trace_plants import Original, places

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/compare.schema.json").read_text()))
COLUMNS = ["planted", "named", "no change", "missed"]
# What is planted into; moe is against itself, moe-nvfp4 its quantized copy against itself, across that copy against the BF16 model.
BASES = {"moe": 4, "moe-nvfp4": 4, "across": 3, "qwen2": 1, "ct-llama3-nvfp4": 1, "fp8-block-llama": 1}
SCALES = ("weight_scale_2", "weight_global_scale")


def four_layers_with_experts(at):
    """A Qwen3-MoE model of 4 layers with 6 experts each, 2 a token."""
    experts, top_k, d, d_ff = 6, 2, 64, 32
    rng = np.random.default_rng(2024)
    model = models.Model(rng, "qwen3", d=d, heads=2, kv_heads=1, head_dim=32, d_ff=64, layers=4, vocab=256)
    tensors = {name: tensor for name, tensor in model.plain().items() if ".mlp." not in name}
    bf16 = lambda n, k: fixture.array(rng.standard_normal((n, k)) * k ** -0.5, "BF16")
    for layer in range(4):
        mlp = f"model.layers.{layer}.mlp."
        tensors[mlp + "gate.weight"] = bf16(experts, d)
        for expert in range(experts):
            for part, (n, k) in {"gate_proj": (d_ff, d), "up_proj": (d_ff, d), "down_proj": (d, d_ff)}.items():
                tensors[f"{mlp}experts.{expert}.{part}.weight"] = bf16(n, k)
    config = {**model.config, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": experts,
              "num_experts_per_tok": top_k, "moe_intermediate_size": d_ff, "norm_topk_prob": True}
    return fixture.write(at, tensors, config)


def times(raw, dtype, factor=1.25):
    """Stored values times a factor, in their own type."""
    if dtype == "F32":
        return (np.frombuffer(raw, "<f4") * np.float32(factor)).astype("<f4").tobytes()
    if dtype == "F8_E4M3":
        values = [float(arithmetic.e4m3_decode(byte)) * factor for byte in raw]
        return bytes(arithmetic.e4m3_encode(np.array(values)).astype(np.uint8))
    values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4") * np.float32(factor)
    return fixture.array(values, "BF16")[2]


class Compared(Original):
    prompt = [int(i) for i in np.random.default_rng(7).integers(1, 250, 48)]  # long enough for every expert to have rows

    def __init__(self, sextant, at, base):
        if base in ("moe", "moe-nvfp4", "across"):
            healthy = four_layers_with_experts(at / "moe")
            directory = healthy if base == "moe" else at / "quantized"
            if directory != healthy:
                done = sextant("quantize", healthy, directory)
                assert done.returncode == 0, done.stderr
            super().__init__(sextant, at, base, directory)
            self.healthy = healthy if base == "across" else directory
        else:
            super().__init__(sextant, at, base)
            self.healthy = self.directory

    def values_of(self, tensor, values):
        # Across formats a factor in some 4-bit weights is less than their rounding; in all of them it is not.
        if self.name == "across":
            return values | ({"all * 1.25": None} if tensor.endswith(SCALES) else {})
        return values | {"1.25": None, "all * 1.25": None}

    def change(self, tensor, element, size, value, values):
        dtype, _, raw = self.tensors[tensor]
        if value == "all * 1.25":
            return 0, times(raw, dtype)
        if value == "1.25":
            return element, times(raw[element * size:(element + 1) * size], dtype)
        return super().change(tensor, element, size, value, values)

    def becomes(self, tensor, offset, directory):
        done = self.sextant("compare", self.healthy, directory, "--ids", self.ids, "--json", "--allow", "C1", "--allow", "C3")
        assert done.returncode in (0, 2), (done.returncode, done.stderr)
        document = json.loads(done.stdout)
        assert "error" not in document, document
        SCHEMA.validate(document)
        assert done.returncode == (2 if document["verdict"] == "bad" else 0)
        found = document["first_divergence"]
        if found is not None:
            right = found["cause"]["tensors"][:1] == [tensor] and found["cause"]["side"] == "b" and tensor in found["message"]
            return "named" if right else f"missed: named {found['message']}"
        if self.healthy == self.directory and document["verdict"] != "identical":
            return "missed: explained"
        return "no change" if self.run(directory)[1] == self.logits else "missed: logits differ"


@pytest.mark.parametrize("base", BASES)
def test_planted_faults_are_attributed(sextant, tmp_path, request, record_property, base):
    total = request.config.getoption("--compare-plants") * BASES[base]
    draws = (np.random.default_rng([list(BASES).index(base), number]) for number in range(-(-total // sum(BASES.values()))))
    kinds, wrong = plants.tally(Compared(sextant, tmp_path, base), draws, COLUMNS)
    record_property("compared plants", {"columns": COLUMNS, "kinds": kinds})
    assert not wrong, "\n" + "\n".join(wrong)


def test_what_is_planted_is_written(sextant, tmp_path):
    """The tests above would pass if nothing were planted: most plants differ from the original."""
    original = Compared(sextant, tmp_path, "moe")
    changed = 0
    for number in range(20):
        _, _, _, directory, _ = original.planted(np.random.default_rng(number))
        changed += (directory / original.file.name).read_bytes() != original.file.read_bytes()
        shutil.rmtree(directory)
    assert changed >= 18
