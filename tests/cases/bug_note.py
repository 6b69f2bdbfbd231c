"""The models of docs/bug-note.md: a tiny Qwen3-MoE in BF16, its NVFP4 copy, and that copy in every broken state of its attention's scales.

    python -m tests.cases.bug_note DIRECTORY [modelopt | compressed-tensors]     $SEXTANT_BIN calibrates (default build/test/sextant)

writes DIRECTORY/bf16, DIRECTORY/ids.json and a directory for every state. As ModelOpt does, input scales are the amax of the BF16 model's inputs
on the calibration text (ids.json), rounded to BF16, over 2688. The norm before layer 0's attention is such that this number is the note's: an
amax of 0.67578125 and an input scale of 0.00025141.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from . import arithmetic, fixture, models

STATES = {
    "right": "the input scales of attention are right",
    "other-data": "they were calibrated on other data: an eighth of what the layer sees",
    "reciprocal": "they are stored the other way round, so that the divisor is read as a multiplier",
    "reciprocal-all": "all input scales of the model are stored the other way round",
    "zeros": "they are 0: never loaded, or never calibrated",
    "nan": "they are NaN",
    "denormal": "they are 1e-40",
    "missing": "they are not in the file, while the config says that they are",
    "cast": "right, but the attention's weights went through a cast without saturation: block scales 0x7F",
    "experts": "no broken state: attention in BF16, to see the experts alone",
}
DIALECTS = {"modelopt": ("weight", "weight_scale_2", "input_scale"),
            "compressed-tensors": ("weight_packed", "weight_global_scale", "input_global_scale")}
AMAX = 0.67578125  # 173 / 256, a BF16 number
D, EXPERTS, TOP_K, LAYERS, VOCAB, TOKENS = 512, 4, 2, 2, 256, 96
ATTENTION = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(LAYERS) for part in "qkvo"]
OTHERS = 8.0    # other-data: r = 8
SHRUNK = 1.25   # cast: the amax that weights are quantized by is that much too small


def bf16(x):
    """Values of float32 rounded to BF16."""
    raw = np.frombuffer(fixture.array(np.asarray(x, np.float32), "BF16")[2], "<u2").astype("<u4") << 16
    return raw.view("<f4").reshape(np.shape(x))


def original():
    """(float32 weights that are BF16 numbers, config, token ids)"""
    rng = np.random.default_rng(334)
    model = models.Model(rng, "qwen3", d=D, heads=8, kv_heads=8, head_dim=64, d_ff=D, layers=LAYERS, vocab=VOCAB)
    weights = {name: values for name, values in model.weights.items() if ".mlp." not in name}
    draw = lambda n, k: rng.standard_normal((n, k)) * k ** -0.5
    for layer in range(LAYERS):
        mlp = f"model.layers.{layer}.mlp."
        weights[mlp + "gate.weight"] = draw(EXPERTS, D)
        for expert in range(EXPERTS):
            weights |= {f"{mlp}experts.{expert}.{part}.weight": draw(D, D) for part in models.MLP}
    weights = {name: bf16(values) for name, values in weights.items()}
    ids = [int(i) for i in rng.integers(1, VOCAB, TOKENS)]
    rows = weights["model.embed_tokens.weight"][ids].astype(np.float64)
    normed = rows / np.sqrt((rows ** 2).mean(1, keepdims=True) + model.config["rms_norm_eps"])
    down = np.float32(AMAX / np.abs(normed).max() * (1 - 2.0 ** -7))  # a BF16 number at most
    for layer in range(LAYERS):
        weights[f"model.layers.{layer}.input_layernorm.weight"] = bf16(np.full(D, down))
        weights[f"model.layers.{layer}.post_attention_layernorm.weight"] = bf16(np.ones(D))
    config = {**model.config, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": EXPERTS,
              "num_experts_per_tok": TOP_K, "moe_intermediate_size": D, "norm_topk_prob": True}
    return weights, config, ids


def attention_input_sigma(weights):
    """rms of the input of q, k and v: an RMSNorm with one weight for all."""
    return float(weights["model.layers.0.input_layernorm.weight"][0])


def calibrated(sextant, bf16_model, ids, at):
    """module -> amax of its input, a BF16 number, as a producer records it."""
    done = subprocess.run([sextant, "calibrate", bf16_model, "--ids", ids, "--headroom", "1", "-o", at / "amax.json"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    amax = {module: float(bf16(entry["measured"]["amax"])) for module, entry in json.loads((at / "amax.json").read_text())["modules"].items()}
    return amax | {f"model.layers.0.self_attn.{part}_proj": AMAX for part in "qkv"}


def input_scale(state, amax, dialect):
    """What the file holds: a multiplier (ModelOpt) or its reciprocal, in the state that it is in; None: nothing."""
    broken = {"zeros": np.float32(0), "nan": np.float32("nan"), "denormal": np.float32(1e-40), "missing": None}
    if state in broken:
        return broken[state]
    g = np.float32(amax / (OTHERS if state == "other-data" else 1)) / np.float32(2688)
    is_divisor = (dialect == "compressed-tensors") != state.startswith("reciprocal")
    return np.float32(1) / g if is_divisor else g


def quantized(w, dialect, saturating):
    """(codes, block scales, g or G)"""
    amax = np.abs(w).max() if saturating else np.abs(w).max() / np.float32(SHRUNK)
    make = arithmetic.nvfp4_d if dialect == "modelopt" else arithmetic.nvfp4_c
    codes, scales, scalar = make(w, amax)
    if not saturating:  # what PyTorch's cast makes of more than 464 [1.2]
        t = arithmetic.block_amax(w, 16).astype(np.float64) * 448 / float(amax)
        scales = np.where(t > 464, 0x7F, scales).astype(np.uint8)
    return codes, scales, scalar


def tensors_of(weights, amax, dialect, state):
    codes_name, global_name, input_name = DIALECTS[dialect]
    shape = () if dialect == "modelopt" else [1]
    tensors = {}
    for name, values in weights.items():
        module = name.removesuffix(".weight")
        attention = module in ATTENTION
        if module not in amax or module == "lm_head" or module.endswith("mlp.gate") or (attention and state == "experts"):
            tensors[name] = fixture.array(values, "BF16")
            continue
        codes, scales, scalar = quantized(values, dialect, saturating=not (attention and state == "cast"))
        tensors |= {f"{module}.{codes_name}": fixture.array(codes, "U8"), f"{module}.weight_scale": fixture.array(scales, "F8_E4M3"),
                    f"{module}.{global_name}": fixture.f32(scalar, shape)}
        scale = input_scale(state if attention or state == "reciprocal-all" else "right", amax[module], dialect)
        if scale is not None:
            tensors[f"{module}.{input_name}"] = fixture.f32(scale, shape)
    return tensors


def quantization(dialect, state):
    ignore = ["lm_head", "*.mlp.gate"] if dialect == "modelopt" else ["lm_head", "re:.*mlp.gate$"]
    if state == "experts":
        ignore.append("*self_attn*" if dialect == "modelopt" else "re:.*self_attn.*")
    if dialect != "modelopt":
        return fixture.compressed_tensors(ignore), None
    config = fixture.modelopt(ignore, **fixture.modelopt_groups(fixture.ARGS), producer={"name": "modelopt", "version": "0.37.0"})
    return config, fixture.modelopt_sidecar(ignore, group_size=16)


def write_all(sextant, at, dialect="modelopt", states=STATES):
    """Writes everything; returns (weights of the original, amax by module)."""
    weights, config, ids = original()
    fixture.write_files(at, {"ids.json": ids})
    fixture.write(at / "bf16", {name: fixture.array(values, "BF16") for name, values in weights.items()}, config)
    amax = calibrated(sextant, at / "bf16", at / "ids.json", at)
    for state in states:
        fields, sidecar = quantization(dialect, state)
        fixture.write(at / state, tensors_of(weights, amax, dialect, state), {**config, **fields}, sidecar)
    return weights, amax


if __name__ == "__main__":
    write_all(os.environ.get("SEXTANT_BIN", "build/test/sextant"), pathlib.Path(sys.argv[1]), *sys.argv[2:])
