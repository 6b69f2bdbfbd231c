"""A second, small implementation of the dense and MoE families, and a loader of every dialect used here.

It reads a checkpoint directory from its files only (config.json, *.safetensors), dequantizes by dtype and shape, and evaluates
in float64 (the truth that the bounds are measured against) or float32. It is written for clarity, not speed, and shares no
code with transformers, which makes the dumps: the two check one another.
"""
import json
import math
import pathlib

import torch
from safetensors import safe_open

import common

# ------------------------------------------------------------------ loading

MXFP4_VALUES = torch.cat([common.E2M1, -common.E2M1])


def read_tensors(dirname):
    out = {}
    for f in sorted(pathlib.Path(dirname).glob("model*.safetensors")):
        with safe_open(f, "pt") as s:
            for k in s.keys():
                assert k not in out, k
                out[k] = s.get_tensor(k)
    return out


def dequantize_mxfp4(blocks, scales):
    """gpt-oss: blocks U8 [E, rows, K/32, 16], scales U8 [E, rows, K/32] (2^(byte-127)); gives [E, K, rows]."""
    v = MXFP4_VALUES[common.unpack(blocks).long()]  # [E, rows, K/32, 32]
    v = torch.ldexp(v, (scales.int() - 127)[..., None])
    return v.flatten(2).transpose(1, 2).contiguous()


def dequantize_fp8_block(w, scale_inv, block=128):
    n, k = w.shape
    s = scale_inv.float().repeat_interleave(block, 0)[:n].repeat_interleave(block, 1)[:, :k]
    return w.float() * s


def load(dirname):
    """Returns config (dict), weights {name: float32}, quantized {module: {"kind", "G" or "scale" of the input or None}}."""
    config = json.loads((pathlib.Path(dirname) / "config.json").read_text())
    raw = read_tensors(dirname)
    W, Q = {}, {}
    used = set()
    for name, t in raw.items():
        base, _, leaf = name.rpartition(".")
        if leaf == "weight_packed":  # compressed-tensors NVFP4
            W[base + ".weight"] = common.dequantize_ct(t, raw[base + ".weight_scale"], raw[base + ".weight_global_scale"])
            G = raw.get(base + ".input_global_scale")
            Q[base] = {"kind": "nvfp4", "G": G, "g": None}
            used |= {name, base + ".weight_scale", base + ".weight_global_scale", base + ".input_global_scale"}
        elif leaf == "weight" and t.dtype == torch.uint8:  # ModelOpt NVFP4
            W[name] = common.dequantize(t, raw[base + ".weight_scale"], raw[base + ".weight_scale_2"])
            Q[base] = {"kind": "nvfp4", "G": None, "g": raw.get(base + ".input_scale")}
            used |= {name, base + ".weight_scale", base + ".weight_scale_2", base + ".input_scale"}
        elif leaf == "weight" and t.dtype == torch.float8_e4m3fn and base + ".weight_scale_inv" in raw:  # FP8 128x128
            W[name] = dequantize_fp8_block(t, raw[base + ".weight_scale_inv"])
            Q[base] = {"kind": "fp8_block"}
            used |= {name, base + ".weight_scale_inv"}
        elif leaf == "weight" and t.dtype == torch.float8_e4m3fn:  # FP8 per tensor
            W[name] = t.float() * raw[base + ".weight_scale"]
            Q[base] = {"kind": "fp8", "scale": raw.get(base + ".input_scale")}
            used |= {name, base + ".weight_scale", base + ".input_scale"}
        elif leaf.endswith("_blocks"):  # gpt-oss MXFP4
            scales = name[: -len("_blocks")] + "_scales"
            W[name[: -len("_blocks")]] = dequantize_mxfp4(t, raw[scales])
            used |= {name, scales}
    for name, t in raw.items():
        if name not in used:
            assert t.dtype in (torch.bfloat16, torch.float32), (name, t.dtype)
            W[name] = t.float()
    return config, W, Q


# ------------------------------------------------------------------ rotary embedding

def rope_parameters(cfg):
    """One dictionary from either style of config.json: rope_parameters, or rope_theta with rope_scaling."""
    r = dict(cfg.get("rope_parameters") or {})
    if not r:
        r = dict(cfg.get("rope_scaling") or {})
        r["rope_type"] = r.get("rope_type", r.get("type", "default"))
        r["rope_theta"] = cfg.get("rope_theta", 10000.0)
        if cfg.get("partial_rotary_factor") is not None:
            r["partial_rotary_factor"] = cfg["partial_rotary_factor"]
    return r


def inverse_frequencies(cfg, seq_len, dtype):
    """inv_freq [rotary/2] and the factor on cos and sin."""
    r = rope_parameters(cfg)
    head_dim = cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
    dim = int(head_dim * r.get("partial_rotary_factor", 1.0))
    theta, kind, factor = r["rope_theta"], r["rope_type"], r.get("factor")
    limit = cfg["max_position_embeddings"]
    if kind == "dynamic" and seq_len > limit:
        theta = theta * (factor * seq_len / limit - (factor - 1)) ** (dim / (dim - 2))
    inv = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=dtype) / dim)
    if kind in ("default", "dynamic"):
        return inv, 1.0
    if kind == "linear":
        return inv / factor, 1.0
    original = r.get("original_max_position_embeddings", limit)
    if kind == "llama3":
        low, high = original / r["low_freq_factor"], original / r["high_freq_factor"]
        wave = 2 * math.pi / inv
        smooth = (original / wave - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
        mid = (1 - smooth) * inv / factor + smooth * inv
        return torch.where(wave > low, inv / factor, torch.where(wave < high, inv, mid)), 1.0
    if kind == "yarn":
        def corr(rotations):
            return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
        lo, hi = corr(r.get("beta_fast") or 32), corr(r.get("beta_slow") or 1)
        if r.get("truncate", True):
            lo, hi = math.floor(lo), math.ceil(hi)
        lo, hi = max(lo, 0), min(hi, dim - 1)
        if lo == hi:
            hi += 0.001
        ramp = ((torch.arange(dim // 2, dtype=dtype) - lo) / (hi - lo)).clamp(0, 1)
        attention_factor = r.get("attention_factor")
        if attention_factor is None:
            def scale(m):
                return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0
            m, m_all = r.get("mscale"), r.get("mscale_all_dim")
            attention_factor = scale(m) / scale(m_all) if m and m_all else scale(1.0)
        return inv / factor * ramp + inv * (1 - ramp), attention_factor
    raise ValueError(kind)


def rotate(x, cos, sin):
    """x [S, heads, T, head_dim]; the first 2*len(cos) dimensions turn, halves paired (not interleaved)."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


# ------------------------------------------------------------------ model

def window_of(cfg, i):
    """Sliding window of layer i, or None: a query sees itself and the window-1 positions before it."""
    w = cfg.get("sliding_window")
    kind = cfg["model_type"]
    if kind in ("mistral", "mixtral"):
        return w
    if kind == "gpt_oss":
        types = cfg.get("layer_types")
        return w if (types[i] == "sliding_attention" if types else i % 2 == 0) else None
    if kind in ("qwen2", "qwen3", "qwen2_moe") and cfg.get("use_sliding_window"):
        types = cfg.get("layer_types")
        return w if (types[i] == "sliding_attention" if types else i >= cfg["max_window_layers"]) else None
    return None


def is_moe(cfg, i):
    kind = cfg["model_type"]
    if kind in ("mixtral", "gpt_oss"):
        return True
    if kind in ("qwen2_moe", "qwen3_moe"):
        return i not in (cfg.get("mlp_only_layers") or []) and (i + 1) % cfg.get("decoder_sparse_step", 1) == 0
    return kind == "glm4_moe" and i >= cfg["first_k_dense_replace"]


class Model:
    """activation(module, x) may replace the input of a linear; inputs, if a dictionary, collects what each linear receives."""

    def __init__(self, cfg, W, dtype=torch.float64, activation=None, inputs=None):
        self.cfg, self.dtype, self.activation, self.inputs = cfg, dtype, activation, inputs
        self.W = {k: v.to(dtype) for k, v in W.items()}

    def linear(self, module, x):
        if self.inputs is not None:
            self.inputs[module] = x.reshape(-1, x.shape[-1]).float()
        if self.activation is not None:
            x = self.activation(module, x)
        y = x @ self.W[module + ".weight"].T
        b = self.W.get(module + ".bias")
        return y if b is None else y + b

    def norm(self, name, x):
        return self.W[name + ".weight"] * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.cfg["rms_norm_eps"]))

    def attention(self, p, i, x, cos, sin):
        cfg = self.cfg
        S, T, _ = x.shape
        H, KV = cfg["num_attention_heads"], cfg["num_key_value_heads"]
        q, k, v = (self.linear(p + n, x).view(S, T, h, -1) for n, h in (("q_proj", H), ("k_proj", KV), ("v_proj", KV)))
        if p + "q_norm.weight" in self.W:
            q, k = self.norm(p + "q_norm", q), self.norm(p + "k_norm", k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(H // KV, 1) for t in (k, v))
        s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        d = torch.arange(T)[:, None] - torch.arange(T)[None, :]
        seen = d >= 0
        w = window_of(cfg, i)
        if w:
            seen &= d < w
        s = s.masked_fill(~seen, -math.inf)
        sinks = self.W.get(p + "sinks")
        if sinks is not None:  # one more column that takes probability and gives nothing
            s = torch.cat([s, sinks.view(1, H, 1, 1).expand(S, H, T, 1)], -1)
        a = torch.softmax(s, -1)[..., :T]
        return self.linear(p + "o_proj", (a @ v).transpose(1, 2).reshape(S, T, -1))

    def swiglu(self, p, x, names=("gate_proj", "up_proj", "down_proj")):
        gate, up, down = (p + n for n in names)
        return self.linear(down, torch.nn.functional.silu(self.linear(gate, x)) * self.linear(up, x))

    def route(self, i, p, x):
        """x [n, d] -> weights, ids [n, k] in descending order of weight; also the smallest gap that decides the choice."""
        cfg, kind = self.cfg, self.cfg["model_type"]
        k = cfg.get("num_experts_per_tok")
        logits = x @ self.W[p + ".weight"].T
        if kind == "gpt_oss":
            logits = logits + self.W[p + ".bias"]
        if kind == "glm4_moe":
            score = torch.sigmoid(logits)
            choice = score + self.W[p + ".e_score_correction_bias"]
            n, G = choice.shape[0], cfg["n_group"]
            groups = choice.view(n, G, -1).topk(2, -1).values.sum(-1)
            best = groups.topk(min(cfg["topk_group"] + 1, G), -1)
            gap = torch.full((n,), math.inf, dtype=x.dtype)
            if cfg["topk_group"] < G:
                gap = best.values[:, -2] - best.values[:, -1]
            keep = torch.zeros_like(groups).scatter_(1, best.indices[:, : cfg["topk_group"]], 1).bool()
            choice = choice.masked_fill(~keep.repeat_interleave(choice.shape[1] // G, 1), -math.inf)
        else:
            choice = logits
        top = choice.topk(min(k + 1, choice.shape[1]), -1)
        ids = top.indices[:, :k]
        inner = top.values[:, -2] - top.values[:, -1]
        gap = torch.minimum(gap, inner) if kind == "glm4_moe" else inner
        if kind == "glm4_moe":
            w = score.gather(1, ids)
            if cfg["norm_topk_prob"]:
                w = w / (w.sum(-1, keepdim=True) + 1e-20)
            w = w * cfg["routed_scaling_factor"]
        elif kind == "gpt_oss":
            w = torch.softmax(top.values[:, :k], -1)
        else:
            w = torch.softmax(logits, -1).gather(1, ids)
            if kind == "mixtral" or cfg["norm_topk_prob"]:
                w = w / w.sum(-1, keepdim=True)
        w, order = w.sort(-1, descending=True)
        ids = ids.gather(1, order)
        self.out[f"router.{i}.ids"], self.out[f"router.{i}.weights"] = ids, w
        self.out[f"router.{i}.gap"] = gap
        return w, ids

    def moe(self, p, i, x):
        cfg, kind = self.cfg, self.cfg["model_type"]
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        p = p + ("block_sparse_moe." if kind == "mixtral" else "mlp.")
        weights, ids = self.route(i, p + ("router" if kind == "gpt_oss" else "gate"), x)
        y = torch.zeros_like(x)
        for e in ids.unique().tolist():
            row, slot = torch.where(ids == e)
            order = row.argsort()
            row, slot = row[order], slot[order]
            if kind == "gpt_oss":
                u = x[row] @ self.W[p + "experts.gate_up_proj"][e] + self.W[p + "experts.gate_up_proj_bias"][e]
                limit, alpha = cfg.get("swiglu_limit", 7.0), 1.702
                gate, up = u[:, 0::2].clamp(max=limit), u[:, 1::2].clamp(-limit, limit)
                z = (up + 1) * gate * torch.sigmoid(alpha * gate)
                z = z @ self.W[p + "experts.down_proj"][e] + self.W[p + "experts.down_proj_bias"][e]
            else:
                names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
                z = self.swiglu(p + f"experts.{e}.", x[row], names)
            y[row] += weights[row, slot, None] * z
        if kind == "glm4_moe":
            y = y + self.swiglu(p + "shared_experts.", x)
        if kind == "qwen2_moe":
            y = y + torch.sigmoid(self.linear(p + "shared_expert_gate", x)) * self.swiglu(p + "shared_expert.", x)
        return y.view(shape)

    def forward(self, ids, stepwise=False):
        """ids int64 [S, T] -> logits, hidden.i, router.i.ids/weights/gap (rows in order s*T + t).

        stepwise: position t turns with the frequencies of length t+1, as a cache that is filled token by token has it
        (differs for dynamic NTK only).
        """
        cfg = self.cfg
        self.out = {}
        T = ids.shape[1]
        inv, factor = inverse_frequencies(cfg, T, self.dtype)
        if stepwise:
            inv = torch.stack([inverse_frequencies(cfg, t + 1, self.dtype)[0] for t in range(T)])
        angle = torch.arange(T, dtype=self.dtype)[:, None] * inv
        cos, sin = angle.cos() * factor, angle.sin() * factor
        h = self.W["model.embed_tokens.weight"][ids]
        self.out["hidden.0"] = h
        for i in range(cfg["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = h + self.attention(p + "self_attn.", i, self.norm(p + "input_layernorm", h), cos, sin)
            x = self.norm(p + "post_attention_layernorm", h)
            h = h + (self.moe(p, i, x) if is_moe(cfg, i) else self.swiglu(p + "mlp.", x))
            self.out[f"hidden.{i + 1}"] = h
        h = self.norm("model.norm", h)
        tied = "lm_head.weight" not in self.W
        self.out["logits"] = h @ self.W["model.embed_tokens.weight"].T if tied else self.linear("lm_head", h)
        return self.out


def quantized_activation(Q):
    """activation() for Model: static NVFP4 or FP8 inputs where a module has an input scale, float32 elsewhere."""
    def activation(module, x):
        v = quantize_input(Q.get(module), x)
        return x if v is None else v[2].to(x.dtype).view(x.shape)
    return activation


def quantize_input(q, x):
    """codes (U8, unpacked E2M1, or F8_E4M3), block scales (None for FP8), value; None where the input is not quantized."""
    if not q:
        return None
    x = x.reshape(-1, x.shape[-1]).float()
    if q["kind"] == "nvfp4" and (q["G"] is not None or q["g"] is not None):
        return common.quantize_activation(x, q["g"], q["G"])
    if q["kind"] == "fp8" and q["scale"] is not None:
        codes = common.e4m3_sat(x / q["scale"])
        return codes, None, codes.float() * q["scale"]
    return None
