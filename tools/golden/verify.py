"""Check golden directories from their files alone: python tools/golden/verify.py [directory ...]

For each directory: the dump recomputed by reference.py in float64 and in float32 within its bounds, expert choices and greedy
continuations equal, W4A4 codes, scales and products recomputed, tensors against dump.json, the index and the quantization
configuration; where transformers reads the dialect, its own loader too, and prefill against token by token with its cache.
Prints 'N passed, M failed'; the exit code is 1 if any failed.
"""
import fnmatch
import json
import pathlib
import re
import sys

import torch
import transformers
from safetensors.torch import load_file

import common
import families
import quantized
import reference

FAMILIES = {"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss", "glm4_moe"}
passed = failed = 0


def check(ok, what, detail=""):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {what} {detail}", flush=True)


def bound_of(bounds, name):
    if name in bounds:
        return bounds[name]
    if name.startswith("router."):
        return bounds["router.weights"]
    return bounds[name.split(".")[0]]


def within(name, got, want, bounds, what):
    d = families.largest(got, want)
    check(d <= bound_of(bounds, name), f"{what} {name}", f"{d:.3g} > {bound_of(bounds, name):.3g}")


def listed(d, name):
    tensors, meta = load_file(d / f"{name}.safetensors"), json.loads((d / f"{name}.json").read_text())
    seen = {k: {"dtype": str(v.dtype).replace("torch.", ""), "shape": list(v.shape)} for k, v in tensors.items()}
    check(seen == meta["tensors"], f"{d.name}/{name}.json tensors")
    return tensors, meta


def check_dump(d, config, W, Q):
    t, meta = listed(d, "dump")
    b = meta["bounds"]
    for dtype in (torch.float64, torch.float32):
        model = reference.Model(config, W, dtype)
        out = model.forward(t["input_ids"])
        what = f"{d.name} {str(dtype)[6:]}"
        for k in t:
            if k in ("input_ids", "greedy_ids"):
                continue
            if k.endswith(".ids"):
                check(torch.equal(out[k], t[k]), f"{what} {k}")
            elif k == "logits_cached":
                within(k, model.forward(t["input_ids"], stepwise=True)["logits"], t[k], b, what)
            else:
                within(k, out[k], t[k], b, what)
                if dtype == torch.float64:  # bounds come from this difference, so hold it against the size of the values too
                    d_abs = families.largest(out[k], t[k])
                    check(d_abs <= families.AGREE * families.rms(t[k]), f"{what} {k} agreement", f"{d_abs:.3g}")
        seq = t["input_ids"]
        for i in range(t["greedy_ids"].shape[1]):
            seq = torch.cat([seq, model.forward(seq)["logits"][:, -1].argmax(-1, keepdim=True)], 1)
        check(torch.equal(seq[:, t["input_ids"].shape[1]:], t["greedy_ids"]), f"{what} greedy_ids")
    return t, meta


def nvfp4_witness(d, m, q, t):
    """Other code for the same rounding: compressed-tensors' quantizer (C of section 1.4) on the stored input. Where C's rules
    are those of A the bytes are equal but for ties and last-bit differences of the quotient."""
    from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams
    scheme = preset_name_to_scheme("NVFP4A16", ["Linear"])
    x, s = t[f"x.{m}"], t[f"scales.{m}"]
    G = (1.0 / q["g"] if q["G"] is None else q["G"]).reshape([1])
    block = x.unflatten(-1, (-1, 16))
    scale, _ = calculate_qparams(block.amin(-1), block.amax(-1), scheme.weights, G)
    theirs = NVFP4PackedCompressor.compress({"weight": x, "weight_scale": scale.float(), "weight_global_scale": G}, scheme)
    zero = s.float() == 0  # C never stores a scale of 0
    same = (theirs["weight_scale"].view(torch.uint8) == s.view(torch.uint8)) | zero
    check(float((~same).sum()) <= 1 + 1e-3 * same.numel(), f"{d.name} scales.{m} against compressed-tensors")
    a, b = common.unpack(theirs["weight_packed"]), common.unpack(t[f"codes.{m}"])
    use = (same & ~zero).repeat_interleave(16, -1)
    off = ((a != b) & use & (((a & 7) != 0) | ((b & 7) != 0))).sum()  # 0 and -0 count as equal
    check(int(off) <= 0.002 * a.numel(), f"{d.name} codes.{m} against compressed-tensors", int(off))


def check_w4a4(d, config, W, Q):
    t, meta = listed(d, "dump_w4a4")
    act = reference.quantized_activation(Q)
    z = reference.Model(config, W, torch.float32, act).forward(t["input_ids"])["logits"]
    check(quantized.cosine(z, t["logits"]) >= meta["bounds"]["logits_cosine"], f"{d.name} w4a4 logits")
    modules = [k[2:] for k in t if k.startswith("x.")]
    missing = set(meta.get("without_input_scale", {}).get("modules", ()))
    check(modules and not missing & set(modules), f"{d.name} w4a4 modules")
    for m in modules:
        codes, scales, value = reference.quantize_input(Q[m], t[f"x.{m}"])
        if scales is not None:
            nvfp4_witness(d, m, Q[m], t)
        if scales is None:
            check(torch.equal(codes.view(torch.uint8), t[f"codes.{m}"].view(torch.uint8)), f"{d.name} codes.{m}")
            value = t[f"codes.{m}"].float() * Q[m]["scale"]
        else:
            check(torch.equal(common.pack(codes), t[f"codes.{m}"]), f"{d.name} codes.{m}")
            check(torch.equal(scales.view(torch.uint8), t[f"scales.{m}"].view(torch.uint8)), f"{d.name} scales.{m}")
            g = Q[m]["g"] if Q[m]["G"] is None else 1.0 / Q[m]["G"]
            value = common.e2m1_values(common.unpack(t[f"codes.{m}"])) * (t[f"scales.{m}"].float() * g).repeat_interleave(16, -1)
        check(meta["bounds"]["y"] <= 1e-3 * families.rms(t[f"y.{m}"]), f"{d.name} y bound {m}")
        for y in ((value.double() @ W[m + ".weight"].double().T), value @ W[m + ".weight"].T):
            dy = families.largest(y, t[f"y.{m}"])
            check(dy <= meta["bounds"]["y"], f"{d.name} y.{m}", f"{dy:.3g}")


def check_files(d, config, Q):
    raw = reference.read_tensors(d)
    index = d / "model.safetensors.index.json"
    if index.exists():
        j = json.loads(index.read_text())
        check(set(j["weight_map"]) == set(raw), f"{d.name} index")
        check(j["metadata"]["total_size"] == sum(v.numel() * v.element_size() for v in raw.values()), f"{d.name} total_size")
    for k, v in raw.items():
        if v.is_floating_point() and v.dtype != torch.float8_e4m3fn:
            check(bool(v.isfinite().all()), f"{d.name} {k} finite")
    qc = config.get("quantization_config")
    check(bool(qc) == bool(Q) or config["model_type"] == "gpt_oss", f"{d.name} quantization_config")
    linears = {k.rsplit(".", 1)[0] for k, v in raw.items() if k.endswith((".weight", ".weight_packed")) and v.dim() == 2}
    linears -= {k for k in linears if k.endswith("embed_tokens")}
    if qc and qc["quant_method"] in ("modelopt", "compressed-tensors"):
        ignore = qc["ignore"]
        out = {m for m in linears if any(fnmatch.fnmatchcase(m, p) or (p.startswith("re:") and re.match(p[3:], m)) for p in ignore)}
        check(set(Q) == linears - out, f"{d.name} ignore list", sorted(set(Q) ^ (linears - out))[:3])
        if qc.get("quantized_layers"):
            check(set(qc["quantized_layers"]) == set(Q), f"{d.name} quantized_layers")
        if qc["quant_method"] == "modelopt":
            h = json.loads((d / "hf_quant_config.json").read_text())["quantization"]
            check(h["exclude_modules"] == ignore and h["quant_algo"] == qc["quant_algo"], f"{d.name} hf_quant_config.json")
    for m in Q:  # no NaN among block scales, K a multiple of 16
        s = raw.get(m + ".weight_scale")
        if s is not None and s.dim() == 2:
            check(bool(s.float().isfinite().all()), f"{d.name} {m} scales")


@torch.no_grad()
def check_transformers(d, config, W, Q, t, meta):
    """transformers reads the directory itself (BF16 and MXFP4); the cache gives what prefill gives."""
    kind = (config.get("quantization_config") or {}).get("quant_method")
    if kind in (None, "mxfp4"):
        extra = {"quantization_config": transformers.Mxfp4Config(dequantize=True)} if kind else {}
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            d, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **extra)
        unexpected = [k for k in info["unexpected_keys"] if not families.is_mtp(config, k)]
        check(not unexpected and not info["missing_keys"] and not info["mismatched_keys"], f"{d.name} transformers keys", info)
        if model._can_set_experts_implementation():
            model.set_experts_implementation("eager")
        within("logits", families.hf_logits(model, t["input_ids"]), t["logits"], meta["bounds"], d.name + " transformers loader")
    else:
        model = families.hf_model(config, W)
    name = "logits_cached" if "logits_cached" in t else "logits"
    within(name, families.stepwise(model, t["input_ids"]), t[name], meta["bounds"], d.name + " token by token")


def main(dirs):
    for d in dirs:
        config = json.loads((d / "config.json").read_text())
        if config.get("model_type") not in FAMILIES or not (d / "dump.json").exists():
            continue
        if json.loads((d / "dump.json").read_text()).get("made_by", "").split("/")[-1] not in OURS:
            continue
        before = failed
        config, W, Q = reference.load(d)
        t, meta = check_dump(d, config, W, Q)
        if (d / "dump_w4a4.json").exists():
            check_w4a4(d, config, W, Q)
        check_files(d, config, Q)
        check_transformers(d, config, W, Q, t, meta)
        check(sum(f.stat().st_size for f in d.iterdir()) < 1.5e6, f"{d.name} size")
        print(f"{'ok    ' if failed == before else 'FAILED'} {d.name}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


OURS = ("dense.py", "moe.py", "quantized.py")

if __name__ == "__main__":
    chosen = [pathlib.Path(a) for a in sys.argv[1:]]
    sys.exit(main(chosen or sorted(f.parent for f in common.GOLDEN.glob("*/config.json"))))
