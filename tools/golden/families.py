"""Shared by dense.py, moe.py and quantized.py: lively random weights under hub names, and dumps made by transformers.

A directory is made in two steps: write the checkpoint, then read it back from its files, hand the (dequantized) float32
weights to transformers' own class with eager attention, and record what it computes.
"""
import json
import logging
import os
import pathlib
import re
import shutil
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
import transformers
from safetensors.torch import load_file, save_file

import common
import reference

transformers.utils.logging.disable_progress_bar()
logging.getLogger("transformers").setLevel(logging.ERROR)

GREEDY = 16
AGREE = 1e-4  # largest difference of float32 transformers and float64 reference.py, as a share of a tensor's rms
# gains: standard deviation of a linear's output for an input of unit size; others are plain standard deviations
GAINS = {"q": 1.5, "k": 1.5, "v": 1.2, "o": 1.5, "gate": 1.6, "up": 1.3, "down": 1.4, "router": 2.5, "shared_gate": 1.5,
         "embed": 1.0, "head": 3.0, "qk_norm": 1.4, "bias": 0.3, "sinks": 1.5, "correction": 0.15}


def init(name, shape, gen, gains):
    """One tensor of a checkpoint, by its hub name; BF16-representable unless stored in F32."""
    n = torch.randn(shape, generator=gen)
    g = dict(GAINS, **(gains or {}))
    if name.endswith("e_score_correction_bias"):
        return g["correction"] * n  # stored in F32
    fan_in = shape[-1]
    if re.search(r"[qk]_norm\.weight$", name):
        t = g["qk_norm"] * (1 + 0.2 * n)
    elif name.endswith("norm.weight"):
        t = 1 + 0.2 * n
    elif name.endswith("sinks"):
        t = g["sinks"] * n
    elif re.search(r"bias$", name):
        t = g["bias"] * n
    elif name.endswith("embed_tokens.weight"):
        t = g["embed"] * n
    elif name == "lm_head.weight":
        t = n * g["head"] / fan_in**0.5
    elif re.search(r"(mlp|block_sparse_moe)\.(gate|router)\.weight$", name):
        t = n * g["router"] / fan_in**0.5
    elif name.endswith("shared_expert_gate.weight"):
        t = n * g["shared_gate"] / fan_in**0.5
    elif name.endswith("experts.gate_up_proj"):  # [E, in, out]
        t = n * g["gate"] / shape[1] ** 0.5
    elif name.endswith("experts.down_proj"):
        t = n * g["down"] / shape[1] ** 0.5
    else:
        part = {"w1": "gate", "w2": "down", "w3": "up"}
        key = name.split(".")[-2].replace("_proj", "")
        t = n * g[part.get(key, key)] / fan_in**0.5
    return t.bfloat16().float()


def random_weights(config, seed, gains=None):
    """Weights float32 under the names that save_pretrained writes, filled in the order of the names."""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        shapes = {k: tuple(v.shape) for k, v in load_file(f"{d}/model.safetensors").items()}
    gen = torch.Generator().manual_seed(seed)
    return {k: init(k, shapes[k], gen, gains) for k in sorted(shapes)}


def to_bf16(W, f32=r"e_score_correction_bias$"):
    """As stored: BF16, except the tensors that checkpoints keep in F32."""
    return {k: v if re.search(f32, k) else v.bfloat16() for k, v in W.items()}


def config_json(config, hub=False, **extra):
    """config.json as transformers 5 writes it; hub=True: in the style of the checkpoints written by transformers 4."""
    config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
    config.dtype = torch.bfloat16
    with tempfile.TemporaryDirectory() as d:
        config.save_pretrained(d)
        c = json.loads(pathlib.Path(d, "config.json").read_text())
    if hub:
        r = dict(c.pop("rope_parameters"))
        c["rope_theta"] = r.pop("rope_theta")
        if "partial_rotary_factor" in r:
            c["partial_rotary_factor"] = r.pop("partial_rotary_factor")
        c["rope_scaling"] = None if r["rope_type"] == "default" else r
        c["torch_dtype"] = c.pop("dtype")
        c["transformers_version"] = "4.51.3"
        if c["model_type"] != "gpt_oss":
            c.pop("layer_types", None)
        c = dict(sorted(c.items()))
    c.update(extra)
    return c


# ------------------------------------------------------------------ transformers

def hf_model(config, W):
    """transformers' model in float32 from a config.json dictionary and float32 weights under hub names."""
    c = {k: v for k, v in config.items() if k != "quantization_config"}
    W = {k: v for k, v in W.items() if not is_mtp(config, k)}
    with tempfile.TemporaryDirectory() as d:
        pathlib.Path(d, "config.json").write_text(json.dumps(c))
        save_file({k: v.contiguous() for k, v in W.items()}, f"{d}/model.safetensors", metadata={"format": "pt"})
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            d, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")
    return model.eval()


def is_mtp(config, name):
    """Multi-token-prediction layers lie behind the last layer; a plain forward does not use them."""
    m = re.match(r"model\.layers\.(\d+)\.", name)
    return bool(m) and int(m[1]) >= config["num_hidden_layers"]


def reset_rope(model):
    """Dynamic NTK keeps the frequencies of the longest sequence seen; forget them."""
    for m in model.modules():
        if hasattr(m, "original_inv_freq"):
            m.inv_freq = m.original_inv_freq.clone()
            m.max_seq_len_cached = m.original_max_seq_len


@torch.no_grad()
def hf_logits(model, ids):
    reset_rope(model)
    return model(input_ids=ids, use_cache=False).logits


@torch.no_grad()
def hf_forward(model, ids):
    """logits, hidden.i (before the final norm), router.i.ids/weights (descending by weight)."""
    out, hooks = {}, []

    def keep(name):
        def hook(_, __, y):
            out[name] = (y[0] if isinstance(y, tuple) else y).detach().clone()
        return hook

    def keep_router(i):
        def hook(_, __, y):
            w, order = y[1].sort(-1, descending=True)
            out[f"router.{i}.ids"] = y[2].gather(1, order).contiguous()
            out[f"router.{i}.weights"] = w.contiguous()
        return hook

    hooks.append(model.model.embed_tokens.register_forward_hook(keep("hidden.0")))
    for i, layer in enumerate(model.model.layers):
        hooks.append(layer.register_forward_hook(keep(f"hidden.{i + 1}")))
        for m in layer.modules():
            if type(m).__name__.lower().endswith("topkrouter"):
                hooks.append(m.register_forward_hook(keep_router(i)))
    out["logits"] = hf_logits(model, ids).clone()
    for h in hooks:
        h.remove()
    return out


def greedy(model, ids, need=1e-2):
    """Greedy continuation by full recomputation; None if some step's choice is not clear (gap <= need x rms of the logits) or is
    an end-of-sequence token."""
    seq, smallest = ids, float("inf")
    eos = model.config.eos_token_id
    eos = set(eos if isinstance(eos, list) else [eos])
    for _ in range(GREEDY):
        z = hf_logits(model, seq)[:, -1]
        top = z.topk(2, -1).values
        gap = ((top[:, 0] - top[:, 1]) / z.pow(2).mean(-1).sqrt()).min().item()
        smallest = min(smallest, gap)
        best = z.argmax(-1, keepdim=True)
        if gap <= need or eos & set(best.flatten().tolist()):
            return None, gap
        seq = torch.cat([seq, best], 1)
    return seq[:, ids.shape[1]:].contiguous(), smallest


def rms(x):
    return x.double().pow(2).mean().sqrt().item()


def largest(a, b):
    return (a.double() - b.double()).abs().max().item()


def dump(dirname, seed, made_by, T=48, S=2, ablations=None, note=None, policy="w4a16-f32", verified=None):
    """Write dump.safetensors and dump.json for a finished checkpoint directory.

    input_ids are drawn again until every choice of experts and every greedy step is clear.
    ablations: {what: config changes}; records how far the logits move when an option is ignored, so that a reader can see
    that the dump tests it.
    """
    config, W, Q = reference.load(dirname)
    model = hf_model(config, W)
    exact = reference.Model(config, W)
    for attempt in range(400):
        gen = torch.Generator().manual_seed(seed + 1000 * attempt + 1)
        ids = torch.randint(0, config["vocab_size"], (S, T), generator=gen)
        truth = exact.forward(ids)
        if any((v <= 1e-3).any() for k, v in truth.items() if k.endswith(".gap")):
            continue
        cont, gap = greedy(model, ids)
        if cont is not None:
            break
    else:
        raise RuntimeError(f"{dirname}: no clear greedy continuation found")
    truth = dict(truth)
    out = hf_forward(model, ids)
    assert out["logits"].isfinite().all()
    tensors = {"input_ids": ids, "greedy_ids": cont, **out}
    groups = {"logits": ["logits"], "hidden": [k for k in out if k.startswith("hidden.")],
              "router.weights": [k for k in out if k.startswith("router.") and k.endswith("weights")]}
    bounds = {"hidden.0": 0.0}
    assert torch.equal(out["hidden.0"].double(), truth["hidden.0"])
    for group, names in groups.items():
        if names:
            bounds[group] = max(common.bound(out[k], truth[k]) for k in names)
            for k in names:  # the two implementations agree; a bound made from their difference cannot show that
                assert largest(out[k], truth[k]) <= AGREE * rms(truth[k]), k
    for k in out:
        if k.endswith(".ids"):
            assert torch.equal(out[k], truth[k]), k
    meta = {
        "policy": policy,
        "source": f"{type(model).__name__}, eager attention, {common.versions()}",
        "bounds": bounds,
        "seed": seed,
        "made_by": made_by,
        "rms": {"logits": round(rms(out["logits"]), 4)},
        "greedy_margin_over_rms": round(gap, 5),
    }
    gaps = [v.min().item() for k, v in truth.items() if k.endswith(".gap")]
    if gaps:
        meta["router_margin"] = round(min(gaps), 6)
    if ablations:
        meta["ablations"] = {}
        for what, change in ablations.items():
            d = largest(reference.Model(dict(config, **change), W).forward(ids)["logits"], truth["logits"])
            assert d > 100 * bounds["logits"], (what, d)
            meta["ablations"][what] = float(f"{d:.3g}")
    if note:
        meta["note"] = note
    if verified:
        meta["verified"] = verified
    if reference.rope_parameters(config)["rope_type"] == "dynamic":
        tensors["logits_cached"] = stepwise(model, ids)
        exactly = exact.forward(ids, stepwise=True)["logits"]
        bounds["logits_cached"] = common.bound(tensors["logits_cached"], exactly)
        assert largest(tensors["logits_cached"], exactly) <= AGREE * rms(exactly)
    common.write_dump(dirname, tensors, meta)
    return model, ids


@torch.no_grad()
def stepwise(model, ids):
    """Logits [S, T, V] token by token with transformers' key-value cache."""
    reset_rope(model)
    past, out = None, []
    for t in range(ids.shape[1]):
        r = model(input_ids=ids[:, t:t + 1], cache=past, use_cache=True)
        past = r.cache
        out.append(r.logits[:, -1])
    return torch.stack(out, 1)


def fresh(name):
    d = common.GOLDEN / name
    shutil.rmtree(d, ignore_errors=True)
    return d


def bf16_model(name, config, made_by, base=0, gains=None, hub=False, more=None, extra=None, f32=r"e_score_correction_bias$",
               **kw):
    """The common case: random BF16 checkpoint and its dump. more(W) may change tensors, extra goes into config.json, names that
    match f32 are stored in F32."""
    seed = common.seed_of(name, base)
    W = random_weights(config, seed, gains)
    if more:
        more(W)
    d = fresh(name)
    common.write_checkpoint(d, to_bf16(W, f32), config_json(config, hub, **(extra or {})))
    dump(d, seed, made_by, policy="f32", **kw)
    size = sum(f.stat().st_size for f in d.iterdir())
    print(f"{name}: {size / 1e6:.2f} MB", flush=True)
    return W
