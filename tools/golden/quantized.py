"""Quantized checkpoints in the dialects of ModelOpt, compressed-tensors and DeepSeek FP8. Run: python make/quantized.py [name ...]

`dump` (policy w4a16-f32): dequantized weights, float32 activations, made by transformers. `dump_w4a4`: the inputs of quantized
linears pass through profile A of section 1.4 (FP8 linears: E4M3 per tensor), made by reference.py in float32.
"""
import collections
import fnmatch
import json
import math
import re
import sys

import torch
from transformers import LlamaConfig, Qwen2Config

import common
import families
import reference
from dense import rope
from moe import qwen3_moe

BY = "make/quantized.py"
LINEAR = re.compile(r"(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj|experts\.\d+\.(gate|up|down)_proj)\.weight$")
FUSED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gateup", "up_proj": "gateup"}


def modules_of(W, also=()):
    return [k[:-7] for k in W if LINEAR.search(k) or k[:-7] in also]


def excluded(module, patterns):
    return any(fnmatch.fnmatchcase(module, p) for p in patterns)


def group_amax(W, modules, shared):
    """The weight amax of each module, or of its fused group (q/k/v, gate/up)."""
    amax = {m: W[m + ".weight"].abs().max() for m in modules}
    if shared:
        groups = collections.defaultdict(list)
        for m in modules:
            parent, leaf = m.rsplit(".", 1)
            groups[parent, FUSED.get(leaf, leaf)].append(m)
        for ms in groups.values():
            top = max(amax[m] for m in ms)
            amax.update({m: top for m in ms})
    return amax


# ------------------------------------------------------------------ input scales

def calibrate(dirname, ids, modules, factor):
    """amax of every quantized linear's input over ids, in the float32 model and, when factor is 1, also in the W4A4 model
    itself, repeated until no input exceeds it. Experts that no token reaches take the largest of their siblings."""
    config, W, Q = reference.load(dirname)
    inputs = {}
    reference.Model(config, W, torch.float32, inputs=inputs).forward(ids)
    amax = {m: inputs[m].abs().max() for m in modules if m in inputs}
    for _ in range(20 if factor == 1 else 0):
        q = {m: scales_of(Q[m]["kind"], amax[m]) for m in amax}
        inputs = {}
        reference.Model(config, W, torch.float32, reference.quantized_activation(q), inputs).forward(ids)
        seen = {m: inputs[m].abs().max() for m in modules if m in inputs}
        if all(seen[m] <= amax.get(m, -1) for m in seen):
            break
        amax.update({m: torch.maximum(seen[m], amax.get(m, seen[m])) for m in seen})
    else:
        assert factor != 1, "input scales do not settle"
    for m in modules:
        if m not in amax:
            leaf = m.rsplit(".", 1)[1]
            amax[m] = max(v for k, v in amax.items() if k.split(".experts.")[0] == m.split(".experts.")[0] and k.endswith(leaf))
    return {m: (amax[m] * factor).float() for m in modules}


def scales_of(kind, amax):
    if kind == "fp8":
        return {"kind": "fp8", "scale": amax / 448.0}
    return {"kind": "nvfp4", "g": amax / 2688.0, "G": None}


# ------------------------------------------------------------------ writers

class Dialect:
    """One checkpoint under construction: float32 weights in, tensors and JSON files out."""

    def __init__(self, name, config, base=0, gains=None, also=(), hub=True, edit=None):
        self.name, self.config, self.hub = name, config, hub
        self.seed = common.seed_of(name, base)
        self.W = families.random_weights(config, self.seed, gains)
        if edit:
            edit(self.W)
        self.linears = modules_of(self.W, also)
        self.tensors = families.to_bf16(self.W)
        self.kinds, self.extra_json, self.quantization = {}, {}, {}
        self.input_names = {}

    def modelopt(self, modules, shared):
        for m, a in group_amax(self.W, modules, shared).items():
            p, s, g = common.quantize_modelopt(self.W[m + ".weight"], a)
            self.tensors.update({m + ".weight": p, m + ".weight_scale": s, m + ".weight_scale_2": g})
            self.kinds[m] = "nvfp4"
            self.input_names[m] = m + ".input_scale"

    def fp8(self, modules):
        for m in modules:
            w = self.W[m + ".weight"]
            s = (w.abs().max() / 448.0).reshape([])
            self.tensors.update({m + ".weight": common.e4m3_sat(w / s), m + ".weight_scale": s})
            self.kinds[m] = "fp8"
            self.input_names[m] = m + ".input_scale"

    def fp8_block(self, modules, block=128):
        for m in modules:
            w = self.W[m + ".weight"]
            n, k = w.shape
            rows, cols = math.ceil(n / block), math.ceil(k / block)
            padded = torch.zeros(rows * block, cols * block)
            padded[:n, :k] = w
            s = padded.view(rows, block, cols, block).abs().amax((1, 3)) / 448.0
            full = s.repeat_interleave(block, 0)[:n].repeat_interleave(block, 1)[:, :k]
            self.tensors.update({m + ".weight": common.e4m3_sat(w / full), m + ".weight_scale_inv": s})
            self.kinds[m] = "fp8_block"

    def compressed_tensors(self, modules, shared=True):
        for m, a in group_amax(self.W, modules, shared).items():
            p, s, G = common.quantize_ct(self.W[m + ".weight"], a)
            del self.tensors[m + ".weight"]
            self.tensors.update({m + ".weight_packed": p, m + ".weight_scale": s, m + ".weight_global_scale": G})
            self.kinds[m] = "nvfp4"
            self.input_names[m] = m + ".input_global_scale"

    def write(self, n_shards=1):
        self.dir = families.fresh(self.name)
        config = families.config_json(self.config, self.hub, quantization_config=self.quantization)
        common.write_checkpoint(self.dir, dict(sorted(self.tensors.items())), config, self.extra_json, n_shards)

    def finish(self, n_shards=1, factor=None, layers=(0, 1), rows=32, without_input=(), reason=None, verified=None, note=None, **kw):
        """Checkpoint, dump and, given a factor on the calibrated amax, input scales and dump_w4a4."""
        self.write(n_shards)
        model, ids = families.dump(self.dir, self.seed, BY, note=note, **kw)
        if factor is not None:
            todo = [m for m in self.input_names if m not in without_input]
            for m, a in calibrate(self.dir, ids, todo, factor).items():
                if self.input_names[m].endswith("input_global_scale"):
                    t = (2688.0 / a).reshape([1])
                else:
                    t = (a / (448.0 if self.kinds[m] == "fp8" else 2688.0)).reshape([])
                self.tensors[self.input_names[m]] = t
            dumps = [(f.name, f.read_bytes()) for f in self.dir.glob("dump*")]
            self.write(n_shards)
            for n, b in dumps:
                (self.dir / n).write_bytes(b)
            dump_w4a4(self.dir, self.seed, ids, layers, rows, factor, model, without_input, reason)
        if verified:
            f = self.dir / "dump.json"
            f.write_text(json.dumps({**json.loads(f.read_text()), "verified": verified()}, indent=1))
        print(f"{self.name}: {sum(f.stat().st_size for f in self.dir.iterdir()) / 1e6:.2f} MB", flush=True)


def modelopt_config(quant_algo, ignore, **more):
    """(quantization_config of config.json, hf_quant_config.json)"""
    producer = {"name": "modelopt", "version": "0.37.0"}
    a4 = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    c = {"config_groups": {"group_0": {"input_activations": dict(a4), "weights": dict(a4), "targets": ["Linear"]}},
         "ignore": ignore, "quant_algo": quant_algo, "producer": producer, "quant_method": "modelopt", **more}
    q = {"quant_algo": quant_algo, "kv_cache_quant_algo": None}
    if quant_algo == "MIXED_PRECISION":
        del c["config_groups"]
    else:
        q["group_size"] = 16
    h = {"producer": producer, "quantization": {**q, "exclude_modules": ignore, **more}}
    return c, {"hf_quant_config.json": h}


def ct_config(ignore, activations=True):
    args = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 16, "strategy": "tensor_group",
            "block_structure": None, "actorder": None, "observer_kwargs": {}}
    return {"config_groups": {"group_0": {
        "input_activations": {**args, "dynamic": "local", "observer": "minmax"} if activations else None,
        "output_activations": None, "targets": ["Linear"],
        "weights": {**args, "dynamic": False, "observer": "minmax"}}},
        "format": "nvfp4-pack-quantized", "global_compression_ratio": None, "ignore": ignore, "kv_cache_scheme": None,
        "quant_method": "compressed-tensors", "quantization_status": "compressed"}


# ------------------------------------------------------------------ compressed-tensors itself as a witness

def verify_ct(d):
    """Compare with the compressed-tensors package: bytes of its compressor, weights and logits of its decompressed model."""
    import compressed_tensors
    import transformers
    from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams

    scheme = preset_name_to_scheme("NVFP4A16", ["Linear"])
    blocks = codes = 0
    for m in d.kinds:
        w, G = d.W[m + ".weight"], d.tensors[m + ".weight_global_scale"]
        block = w.unflatten(-1, (-1, 16))
        scale, _ = calculate_qparams(block.amin(-1), block.amax(-1), scheme.weights, G)
        theirs = NVFP4PackedCompressor.compress(
            {"weight": w, "weight_scale": scale.float(), "weight_global_scale": G}, scheme)
        assert torch.equal(theirs["weight_scale"].view(torch.uint8), d.tensors[m + ".weight_scale"].view(torch.uint8)), m
        a, b = common.unpack(theirs["weight_packed"]), common.unpack(d.tensors[m + ".weight_packed"])
        blocks += a.numel()
        codes += int((a != b).sum())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        d.dir, dtype=torch.float32, attn_implementation="eager",
        quantization_config=transformers.CompressedTensorsConfig(dequantize=True))
    config, W, Q = reference.load(d.dir)
    ours = families.hf_model(config, {k: v.bfloat16().float() if k[:-7] in Q else v for k, v in W.items()})
    theirs, mine = model.state_dict(), ours.state_dict()
    assert all(torch.equal(theirs[m + ".weight"], mine[m + ".weight"]) for m in Q)
    ids = families.load_file(d.dir / "dump.safetensors")
    same = torch.equal(families.hf_logits(model, ids["input_ids"]), families.hf_logits(ours, ids["input_ids"]))
    assert same
    c = cosine(families.hf_logits(model, ids["input_ids"]), ids["logits"])
    return (f"compressed-tensors {compressed_tensors.__version__}: its block scales are the same bytes and its compressor gives the "
            f"same codes ({codes} of {blocks} differ); the directory loads in transformers (CompressedTensorsConfig(dequantize=True)), every weight equals "
            "this dump's dequantized weight rounded to BF16, and so do the logits bit for bit with weights so rounded; cosine "
            f"with this dump's logits (weights not rounded) {c:.6f}")


# ------------------------------------------------------------------ W4A4 dump

def cosine(a, b):
    a, b = a.double().flatten(), b.double().flatten()
    return (a @ b / (a.norm() * b.norm())).item()


@torch.no_grad()
def hf_w4a4(model, Q, ids):
    """The same policy through transformers' modules (linears only: not for fused experts)."""
    act = reference.quantized_activation(Q)
    hooks = [m.register_forward_pre_hook(lambda mod, a, n=n: (act(n, a[0]),)) for n, m in model.named_modules()
             if isinstance(m, torch.nn.Linear)]
    z = families.hf_logits(model, ids)
    for h in hooks:
        h.remove()
    return z


def dump_w4a4(dirname, seed, ids, layers, rows, factor, model, without_input, reason):
    config, W, Q = reference.load(dirname)
    act = reference.quantized_activation(Q)
    inputs = {}
    logits = reference.Model(config, W, torch.float32, act, inputs).forward(ids)["logits"]
    tensors = {"input_ids": ids, "logits": logits}
    y_bound, clipped, zero = 0.0, 0, 0
    for m, x in inputs.items():
        layer = re.match(r"model\.layers\.(\d+)\.", m)
        x = x[:rows].contiguous()
        r = reference.quantize_input(Q.get(m), x)
        if r is None or (layer and int(layer[1]) not in layers):
            continue
        codes, scales, value = r
        w = W[m + ".weight"]
        y = (value.double() @ w.double().T).float()
        tensors[f"x.{m}"], tensors[f"y.{m}"] = x, y
        if scales is None:
            tensors[f"codes.{m}"] = codes
            clipped += int((x.abs() > 448 * Q[m]["scale"] * (1 + 1e-6)).sum())
        else:
            tensors[f"codes.{m}"], tensors[f"scales.{m}"] = common.pack(codes), scales
            g = Q[m]["g"] if Q[m]["G"] is None else 1 / Q[m]["G"]
            clipped += int((x.abs() > 2688 * g * (1 + 1e-6)).sum())
            zero += int((scales.float() == 0).sum())
        y_bound = max(y_bound, common.bound(value @ w.T, y))
    hard = reference.Model(config, W, torch.float64, act).forward(ids)["logits"]
    cos = {"same code in float64": round(cosine(logits, hard), 6)}
    if not any(".experts." in m for m in Q):
        cos["transformers, inputs of its linears quantized"] = round(cosine(logits, hf_w4a4(model, Q, ids)), 6)
    full = reference.Model(config, W, torch.float64).forward(ids)["logits"]
    cos["w4a16-f32 (not the same policy)"] = round(cosine(logits, full), 6)
    assert min(v for k, v in cos.items() if "not the same" not in k) >= 0.998, cos
    meta = {
        "policy": "w4a4",
        "source": f"make/reference.py, {common.versions()}",
        "bounds": {"scales": "equal bytes", "codes": "equal, or one code apart on at most 0.2 % of the elements of a tensor",
                   "y": y_bound, "logits_cosine": 0.995},
        "seed": seed, "made_by": BY,
        "input_scale": f"calibrated amax over input_ids times {factor}",
        "teacher_forced": f"x is the input that the module receives in this run (first {rows} rows; experts: the rows routed to it, "
                          "in order); y = value(codes, scales) @ W^T in float64 rounded to float32, without bias. y is held to its "
                          "bound for the stored codes and scales.",
        "logits_cosine_seen": cos, "clipped_elements": clipped, "zero_scale_blocks": zero,
    }
    if without_input:
        meta["without_input_scale"] = {"modules": list(without_input), "meaning": reason}
    common.write_dump(dirname, tensors, meta, "dump_w4a4")


# ------------------------------------------------------------------ the directories

def llama(**kw):
    d = dict(vocab_size=320, hidden_size=96, intermediate_size=208, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=320, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
             rope_parameters=rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=40))
    return LlamaConfig(**{**d, **kw})


def modelopt_separate():
    d = Dialect("modelopt-llama3-separate", llama(), gains={"q": 2.4, "k": 0.9, "v": 4.0, "gate": 2.5, "up": 0.9, "o": 0.7})
    d.modelopt(d.linears, shared=False)
    d.quantization, d.extra_json = modelopt_config("NVFP4", ["lm_head"])
    d.finish(n_shards=2, factor=1, note="q/k/v and gate/up have their own weight_scale_2 each; sharing one gives wrong numbers.")


def modelopt_shared():
    d = Dialect("modelopt-llama3-shared", llama(tie_word_embeddings=True), gains={"embed": 0.3})
    d.modelopt(d.linears, shared=True)
    d.quantization, d.extra_json = modelopt_config("NVFP4", ["lm_head"])
    d.finish(factor=0.25, note="input_scale is a quarter of the calibrated amax: activations saturate.")


def ct_nvfp4(name="ct-llama3-nvfp4", activations=True):
    d = Dialect(name, llama(head_dim=24, num_attention_heads=4), hub=activations)
    d.compressed_tensors(d.linears)
    d.quantization = ct_config(["lm_head"], activations)
    d.finish(factor=1 if activations else None, verified=lambda: verify_ct(d))


def ct_nvfp4a16():
    ct_nvfp4("ct-llama3-nvfp4a16", activations=False)


def modelopt_qwen3moe():
    d = Dialect("modelopt-qwen3-moe", qwen3_moe(num_experts=6, num_experts_per_tok=2))
    d.modelopt(d.linears, shared=False)
    d.quantization, d.extra_json = modelopt_config(
        "NVFP4", ["lm_head"] + [f"model.layers.{i}.mlp.gate" for i in range(2)])
    missing = [f"model.layers.1.mlp.experts.2.{p}_proj" for p in ("gate", "up", "down")]
    d.finish(factor=1, layers=(0, 1), rows=10, without_input=missing,
             reason="no input_scale in the file: this dump leaves the inputs of these linears unquantized (float32)")


def modelopt_mixed():
    d = Dialect("modelopt-llama-mixed", llama(rope_parameters=rope()))
    attention = [m for m in d.linears if ".self_attn." in m]
    mlp = [m for m in d.linears if ".mlp." in m]
    d.fp8(attention)
    d.modelopt(mlp, shared=True)
    layers = {m: {"quant_algo": "FP8"} if m in attention else {"quant_algo": "NVFP4", "group_size": 16} for m in d.linears}
    d.quantization, d.extra_json = modelopt_config("MIXED_PRECISION", ["lm_head"], quantized_layers=layers)
    d.finish(factor=1)


def modelopt_qwen2_mlp():
    c = Qwen2Config(vocab_size=331, hidden_size=80, intermediate_size=176, num_hidden_layers=2, num_attention_heads=5,
                    num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=True, rope_parameters=rope(theta=1e6))
    d = Dialect("modelopt-qwen2-mlp", c, gains={"embed": 0.35})
    ignore = ["lm_head", "model.layers.*.self_attn*"]
    d.modelopt([m for m in d.linears if not excluded(m, ignore)], shared=True)
    d.quantization, d.extra_json = modelopt_config("NVFP4", ignore)
    d.finish(factor=1)


def fp8_block():
    c = llama(hidden_size=144, num_attention_heads=9, num_key_value_heads=3, head_dim=16, intermediate_size=208,
              rope_parameters=rope())
    d = Dialect("fp8-block-llama", c)
    d.fp8_block(d.linears)
    d.quantization = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
    d.finish(policy="w8a16-f32", note="Weights are F8_E4M3 times weight_scale_inv per 128x128 block (ragged at both edges); "
             "activations stay float32.")


ALL = [modelopt_separate, modelopt_shared, ct_nvfp4, ct_nvfp4a16, modelopt_qwen3moe, modelopt_mixed, modelopt_qwen2_mlp, fp8_block]

if __name__ == "__main__":
    for make in ALL:
        if not sys.argv[1:] or make.__name__ in sys.argv[1:]:
            make()
