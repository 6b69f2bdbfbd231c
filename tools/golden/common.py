"""What every golden generator shares: NVFP4 arithmetic, checkpoint writers, dump files.

Formats and section numbers refer to docs/nvfp4.md. Everything is float32 on one CPU thread unless said otherwise.
"""
import hashlib
import json
import os
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN", pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))


# ------------------------------------------------------------------ NVFP4 arithmetic

def e2m1_codes(x):
    """float32 -> code 0..15, nearest, ties to the even code, saturating; -0.0 keeps its sign (section 1.1)."""
    a = x.abs().double()
    mid = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]  # between code i and i+1
    code = torch.zeros(x.shape, dtype=torch.uint8)
    for i, m in enumerate(mid):
        up = (a > m) if i % 2 == 0 else (a >= m)  # a tie goes to the even code
        code += up.to(torch.uint8)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def e4m3_sat(t):
    """float32 -> E4M3FN, nearest even, saturating at 448."""
    return t.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def pack(codes):
    """[.., K] codes -> [.., K/2] bytes; the even element is the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).contiguous()


def unpack(packed):
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)


def e2m1_values(codes):
    v = E2M1[(codes & 7).long()]
    return torch.where(codes >= 8, -v, v)


def dequantize(packed, scale, g):
    """d = f32(S*g), then f32(q*d): section 1.6 (multiplier convention)."""
    q = e2m1_values(unpack(packed))
    d = scale.float() * g
    return q * d.repeat_interleave(16, dim=-1)


def dequantize_ct(packed, scale, G):
    """compressed-tensors: d = f32(S/G), then f32(q*d)."""
    q = e2m1_values(unpack(packed))
    d = scale.float() / G
    return q * d.repeat_interleave(16, dim=-1)


def quantize_modelopt(w, amax=None):
    """Weight quantizer D (section 1.4): returns packed U8, scale E4M3, g float32 []. The amax may be shared by a fused group."""
    w = w.float()
    g = (torch.as_tensor(w.abs().max() if amax is None else amax, dtype=torch.float32)) / (6.0 * 448.0)
    m = w.unflatten(-1, (-1, 16)).abs().amax(-1)
    t = m / (6.0 * g)
    t = torch.where(t == 0, torch.ones_like(t), t)
    s = t.to(torch.float8_e4m3fn)
    d = (s.float() * g).repeat_interleave(16, dim=-1)
    x = w / d
    x = torch.where(x == 0, torch.zeros_like(x), x)  # D gives code 0 for -0.0
    return pack(e2m1_codes(x)), s, g.reshape([])


def quantize_ct(w, amax=None):
    """Weight quantizer C (section 1.4): returns packed U8, scale E4M3, G float32 [1]."""
    w = w.float()
    G = 448.0 * 6.0 / torch.as_tensor(w.abs().max() if amax is None else amax, dtype=torch.float32)
    m = w.unflatten(-1, (-1, 16)).abs().amax(-1)
    s = e4m3_sat(G * (m / 6.0))
    s = torch.where(s.float() == 0, torch.tensor(0.125), s.float()).to(torch.float8_e4m3fn)
    d = (s.float() / G).repeat_interleave(16, dim=-1)
    x = (w / d).clamp(-6.0, 6.0)
    x = torch.where(x == 0, torch.zeros_like(x), x)
    return pack(e2m1_codes(x)), s, G.reshape([1])


def quantize_activation(x, g, G=None):
    """W4A4 input, profile A with IEEE division in place of rcp.approx (section 1.4).

    x float32 [rows, K]; g the multiplier amax/2688, or G the divisor 2688/amax (give one, None for the other).
    Returns codes [rows, K] U8, scale E4M3 [rows, K/16], value float32 [rows, K].
    """
    x = x.float()
    if G is None:
        g = torch.as_tensor(g, dtype=torch.float32)
        G = 1.0 / g
    else:
        G = torch.as_tensor(G, dtype=torch.float32)
        g = 1.0 / G
    m = x.unflatten(-1, (-1, 16)).abs().amax(-1)
    s = e4m3_sat(G * (m * torch.tensor(1.0 / 6.0, dtype=torch.float32)))
    S = s.float()
    o = torch.where(S != 0, 1.0 / (S * (1.0 / G)), torch.zeros_like(S))
    codes = e2m1_codes(x * o.repeat_interleave(16, dim=-1))
    value = e2m1_values(codes) * (S * g).repeat_interleave(16, dim=-1)
    return codes, s, value


# ------------------------------------------------------------------ files

def save(tensors, path, **kw):
    """save_file, readable by all."""
    save_file(tensors, path, **kw)
    os.chmod(path, 0o644)


def write_checkpoint(dirname, tensors, config, extra_json=None, n_shards=1):
    """A Hugging Face directory: config.json, model.safetensors or shards with an index, further JSON files by name."""
    os.makedirs(dirname, exist_ok=True)
    d = pathlib.Path(dirname)
    tensors = {k: v.contiguous().clone() for k, v in tensors.items()}
    if n_shards == 1:
        save(tensors, d / "model.safetensors", metadata={"format": "pt"})
    else:
        names = list(tensors)
        weight_map = {}
        for i in range(n_shards):
            part = names[i::n_shards]
            fn = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
            save({k: tensors[k] for k in part}, d / fn, metadata={"format": "pt"})
            weight_map.update({k: fn for k in part})
        total = sum(v.numel() * v.element_size() for v in tensors.values())
        (d / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, indent=1))
    (d / "config.json").write_text(json.dumps(config, indent=1))
    for name, obj in (extra_json or {}).items():
        (d / name).write_text(json.dumps(obj, indent=1))


def write_dump(dirname, tensors, meta, name="dump"):
    """dump.safetensors + dump.json beside the checkpoint; meta needs: policy, source, bounds, seed, made_by."""
    for k in ("policy", "source", "bounds", "seed", "made_by"):
        assert k in meta, k
    d = pathlib.Path(dirname)
    save({k: v.contiguous().clone() for k, v in tensors.items()}, d / f"{name}.safetensors")
    meta = dict(meta, tensors={k: {"dtype": str(v.dtype).replace("torch.", ""), "shape": list(v.shape)} for k, v in tensors.items()})
    (d / f"{name}.json").write_text(json.dumps(meta, indent=1))


def versions():
    import transformers
    return f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, CPU, float32"


def bound(a, b, factor=20.0, floor=2e-5):
    """An absolute bound from two evaluations of the same thing (float32 against float64): factor x their largest difference,
    at least floor x the root mean square."""
    diff = (a.double() - b.double()).abs().max().item()
    rms = b.double().pow(2).mean().sqrt().item()
    return float(f"{max(factor * diff, floor * rms):.3g}")


def seed_of(name, base=0):
    return int.from_bytes(hashlib.sha256(f"{name}/{base}".encode()).digest()[:4], "little")
