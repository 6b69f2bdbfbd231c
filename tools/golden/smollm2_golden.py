"""Golden outputs of SmolLM2-135M-Instruct (directory made by smollm2.py): greedy continuations, last logits, NVFP4 hashes, perplexity.

    python smollm2_golden.py greedy  --model DIR --prompts smollm2_prompts.json --out ../../tests/golden/smollm2
    python smollm2_golden.py nvfp4   --model DIR --out ../../tests/golden/smollm2            (hashes, weight errors)
    python smollm2_golden.py eval    --model DIR --out ../../tests/golden/smollm2            (perplexity, divergence; needs greedy and nvfp4 first)
    python smollm2_golden.py export  --model DIR --out ../../tests/golden/smollm2 --to DIR2  (the NVFP4 checkpoint in ModelOpt's layout)
    python smollm2_golden.py tokenizer --model DIR --out ../../tests/golden/smollm2          (tokenizer_cases.json, as tokenizers/*/cases.json)
    python smollm2_golden.py text    --model DIR --out ../../tests/golden/smollm2            (how eval.txt was made; not repeated)

Policy: every weight is the BF16 value widened to float32, everything else is float32 on one thread, eager attention, no rounding to
BF16 anywhere. Bounds come from a second evaluation in float64.
"""
import argparse
import hashlib
import json
import pathlib
import struct
import time

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import common

STEPS = 48
WINDOW = 1024


def load(path, dtype=torch.float32):
    m = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager")
    m.eval()
    if dtype == torch.float64:  # the rotary table of transformers is computed in float32
        m.to(torch.float64)
    return m


def linears(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"}


def f32bits(x):
    return struct.pack("<f", float(x)).hex()


def sha(t):
    return hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def quantize_model(model, quantizer=common.quantize_modelopt):
    """Replaces every linear's weight by its dequantized NVFP4 value; returns {name: (packed, scale, g)}."""
    out = {}
    with torch.no_grad():
        for n, m in linears(model).items():
            p, s, g = quantizer(m.weight)
            out[n] = (p, s, g)
            m.weight.copy_(common.dequantize(p, s, g))
    return out


# ------------------------------------------------------------------ prompts and greedy

def expand(text, out):
    if text.startswith("@eval_prose:"):
        _, a, b = text.split(":")
        return (common.GOLDEN / "smollm2" / "eval_prose.txt").read_text(encoding="utf-8")[int(a):int(b)]
    return text


def encode_prompts(args):
    tok = AutoTokenizer.from_pretrained(args.model)
    raw = Tokenizer.from_file(str(pathlib.Path(args.model) / "tokenizer.json"))
    res = []
    for p in json.loads(pathlib.Path(args.prompts).read_text(encoding="utf-8")):
        if "messages" in p:
            msgs = [dict(m, content=expand(m["content"], args.out)) for m in p["messages"]]
            text = tok.apply_chat_template(msgs, add_generation_prompt=True, tokenize=False)
            e = {"name": p["name"], "kind": "chat", "messages": msgs, "text": text}
        else:
            e = {"name": p["name"], "kind": "raw", "text": expand(p["text"], args.out)}
        e["ids"] = raw.encode(e["text"], add_special_tokens=False).ids
        res.append(e)
    return tok, res


@torch.no_grad()
def greedy(model, ids, steps=STEPS):
    """Prefill, then one token at a time with the key/value cache. EOS does not stop it. Returns last prompt logits and the steps."""
    out, cache, inp, first = [], None, torch.tensor([ids]), None
    for _ in range(steps):
        r = model(input_ids=inp, past_key_values=cache, use_cache=True)
        cache, x = r.past_key_values, r.logits[0, -1].float()
        first = x if first is None else first
        v, i = x.topk(2)
        out.append((int(i[0]), int(i[1]), float(v[0] - v[1]), float(x.double().pow(2).mean().sqrt())))
        inp = i[None, :1]
    return first, out


def steps_json(steps, tok, eos=2):
    ids = [s[0] for s in steps]
    return {"ids": ids, "second": [s[1] for s in steps], "margin": [float(f"{s[2]:.6g}") for s in steps],
            "rms": [float(f"{s[3]:.6g}") for s in steps], "eos_at": ids.index(eos) if eos in ids else None, "text": tok.decode(ids)}


def do_greedy(args):
    out = pathlib.Path(args.out)
    tok, prompts = encode_prompts(args)
    torch.manual_seed(0)
    m32, logits, table = load(args.model), {}, {}
    for p in prompts:
        first, steps = greedy(m32, p["ids"])
        logits[p["name"]] = first
        table[p["name"]] = {"bf16": steps_json(steps, tok)}
        print(p["name"], len(p["ids"]), repr(table[p["name"]]["bf16"]["text"][:90]), min(s[2] for s in steps), flush=True)
    m64, bounds = load(args.model, torch.float64), {}
    with torch.no_grad():
        for p in prompts:
            t = table[p["name"]]["bf16"]
            n = len(p["ids"])
            x = m64(input_ids=torch.tensor([p["ids"] + t["ids"][:-1]])).logits[0, n - 1:]
            bounds[p["name"]] = common.bound(logits[p["name"]], x[0])
            top = x.topk(2)
            agree = (top.indices[:, 0] == torch.tensor(t["ids"])).tolist()
            # float64 may only disagree where the margin is nearly nothing
            t["float64_agrees"] = all(agree)
            diff = [abs(a - b) for a, b in zip((top.values[:, 0] - top.values[:, 1]).tolist(), t["margin"])]
            t["margin_error"] = float(f"{max(d for d, ok in zip(diff, agree) if ok):.2g}")
            print(p["name"], bounds[p["name"]], all(agree), t["margin_error"], flush=True)
    del m64
    quantize_model(m32)
    for p in prompts:
        first, steps = greedy(m32, p["ids"])
        e = steps_json(steps, tok)
        v, i = first.topk(20)
        e["last_top20"] = [[int(a), float(f"{float(b):.7g}")] for a, b in zip(i, v)]
        table[p["name"]]["nvfp4_w4a16"] = e
    wr = lambda name, obj: (out / name).write_text(json.dumps(obj, ensure_ascii=False, indent=None, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('"},"', '"},\n"') + "\n", encoding="utf-8")
    wr("prompts.json", prompts)
    wr("greedy.json", table)
    save_file({k: v.clone() for k, v in logits.items()}, out / "last_logits.safetensors")
    (out / "last_logits.json").write_text(json.dumps({
        "policy": "BF16 weights widened to float32, float32 throughout, eager attention, one thread; logits after the last prompt token",
        "source": "make/smollm2.py and make/smollm2_golden.py greedy", "made_by": common.versions(), "seed": None,
        "bounds": bounds}, indent=1) + "\n")


# ------------------------------------------------------------------ NVFP4 weights

def four_over_six(w):
    """g = amax/1536; per block the scale for 6 or 1.5 times it (largest value on 4), the smaller squared error wins, a tie keeps 6."""
    w = w.float()
    g = w.abs().max() / (6.0 * 256.0)
    b = w.unflatten(-1, (-1, 16))
    t6 = b.abs().amax(-1) / (6.0 * g)
    t6 = torch.where(t6 == 0, torch.ones_like(t6), t6)
    best = None
    for t in (t6, 1.5 * t6):
        s = common.e4m3_sat(t)
        d = (s.float() * g)[..., None]
        c = common.e2m1_codes(torch.where(b == 0, torch.zeros_like(b), b) / d)
        err = (common.e2m1_values(c) * d - b).double().pow(2).sum(-1)
        if best is None:
            best = (err, s.view(torch.uint8), c)
        else:
            k = err < best[0]
            best = (torch.where(k, err, best[0]), torch.where(k, s.view(torch.uint8), best[1]), torch.where(k[..., None], c, best[2]))
    return common.pack(best[2].flatten(-2)), best[1].view(torch.float8_e4m3fn), g.reshape([])


def mse_scale(w):
    """g = amax/2688; per block the scale byte with the least squared error out of the nearest one minus 8 up to plus 4 (1..0x7E)."""
    w = w.float()
    g = w.abs().max() / 2688.0
    b = w.unflatten(-1, (-1, 16))
    s0 = common.e4m3_sat(b.abs().amax(-1) / (6.0 * g)).view(torch.uint8).int()
    best = None
    for k in range(-8, 5):
        sb = (s0 + k).clamp(1, 0x7E).to(torch.uint8)
        d = (sb.view(torch.float8_e4m3fn).float() * g)[..., None]
        c = common.e2m1_codes(torch.where(b == 0, torch.zeros_like(b), b) / d)
        err = (common.e2m1_values(c) * d - b).double().pow(2).sum(-1)
        if best is None:
            best = (err, sb, c)
        else:
            k = err < best[0]
            best = (torch.where(k, err, best[0]), torch.where(k, sb, best[1]), torch.where(k[..., None], c, best[2]))
    return common.pack(best[2].flatten(-2)), best[1].view(torch.float8_e4m3fn), g.reshape([])


QUANTISERS = {"rtn": common.quantize_modelopt, "four_over_six": four_over_six, "mse_scale": mse_scale}


def do_nvfp4(args):
    out = pathlib.Path(args.out)
    m = load(args.model)
    table, errors = {}, {k: {} for k in QUANTISERS}
    for n, l in linears(m).items():
        w = l.weight.detach()
        for k, q in QUANTISERS.items():
            p, s, g = q(w)
            e = common.dequantize(p, s, g).double() - w.double()
            errors[k][n] = float(f"{(e.pow(2).sum() / w.double().pow(2).sum()).sqrt().item():.6g}")
            if k == "rtn":
                table[n] = {"shape": list(w.shape), "weight": sha(p), "weight_scale": sha(s), "weight_scale_2": f32bits(g)}
    (out / "nvfp4.sha256.json").write_text(json.dumps({
        "quantizer": "ModelOpt (profile D of design/nvfp4.md section 1.4), one amax per tensor, nothing shared between q, k, v or gate, up",
        "weight": "SHA-256 of the U8 codes [N, K/2]", "weight_scale": "SHA-256 of the E4M3 bytes [N, K/16]",
        "weight_scale_2": "g, the four bytes of the float32 in hexadecimal, little-endian", "excluded": ["lm_head", "model.embed_tokens"],
        "tensors": table}, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    mean = {k: sum(v.values()) / len(v) for k, v in errors.items()}
    (out / "weight_error.json").write_text(json.dumps({
        "what": "relative L2 error per tensor, sqrt(sum (wq-w)^2 / sum w^2), for three choices of block scale",
        "rtn": "as nvfp4.sha256.json", "four_over_six": four_over_six.__doc__, "mse_scale": mse_scale.__doc__,
        "mean": mean, "tensors": errors}, indent=None, separators=(",", ":")).replace(',"model', ',\n"model') + "\n")
    print(mean)


# ------------------------------------------------------------------ evaluation

class ActQuant:
    """Quantizes the input of every linear: static g from a table, or g from the amax of each call's whole input."""

    def __init__(self, model, static=None):
        self.h = []
        for n, m in linears(model).items():
            g = None if static is None else torch.tensor(static[n], dtype=torch.float32)
            self.h.append(m.register_forward_pre_hook(self.hook(g)))

    def hook(self, g):
        def f(mod, a):
            x = a[0]
            gg = (x.abs().max() / 2688.0) if g is None else g
            return (common.quantize_activation(x.reshape(-1, x.shape[-1]), gg)[2].reshape(x.shape),)
        return f

    def close(self):
        for h in self.h:
            h.remove()


@torch.no_grad()
def calibrate(model, prompts):
    amax, hs = {}, []
    for n, m in linears(model).items():
        def f(mod, a, n=n):
            amax[n] = max(amax.get(n, 0.0), float(a[0].abs().max()))
        hs.append(m.register_forward_pre_hook(f))
    for p in prompts:
        model(input_ids=torch.tensor([p["ids"]]))
    for h in hs:
        h.remove()
    return {n: float((torch.tensor(a, dtype=torch.float32) / 2688.0)) for n, a in amax.items()}, amax


@torch.no_grad()
def do_eval(args):
    out = pathlib.Path(args.out)
    prompts = json.loads((out / "prompts.json").read_text(encoding="utf-8"))
    tok = Tokenizer.from_file(str(pathlib.Path(args.model) / "tokenizer.json"))
    base = load(args.model)
    scales, amax = calibrate(base, prompts)
    (out / "input_scales.json").write_text(json.dumps({
        "what": "input_scale g = f32(amax/2688) of every linear; amax over all positions of the prompts in prompts.json, unquantized model",
        "g": scales}, indent=0) + "\n")
    variants = {"nvfp4_w4a16": (common.quantize_modelopt, None), "nvfp4_w4a4_static": (common.quantize_modelopt, scales),
                "nvfp4_w4a4_dynamic": (common.quantize_modelopt, "dynamic"), "four_over_six_w4a16": (four_over_six, None),
                "mse_scale_w4a16": (mse_scale, None)}
    res = {}
    for fn in ("eval.txt", "eval_prose.txt"):
        raw = (out / fn).read_bytes()
        ids = tok.encode(raw.decode("utf-8"), add_special_tokens=False).ids
        wins = [ids[i:i + WINDOW] for i in range(0, len(ids), WINDOW)]
        wins = [w for w in wins if len(w) >= 2]
        r = res[fn] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw), "tokens": len(ids),
                       "ids_sha256": hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest(), "scored": sum(len(w) - 1 for w in wins)}
        lps, rows = [], []
        for w in wins:
            lp = torch.log_softmax(base(input_ids=torch.tensor([w])).logits[0, :-1], -1)
            lps.append(lp)
            rows.append(-lp.double().gather(1, torch.tensor(w[1:])[:, None]).sum().item())
        r["bf16"] = summary(rows, r["scored"])
        print(fn, len(ids), r["bf16"], flush=True)
        for name, (q, act) in variants.items():
            t = time.time()
            model = load(args.model)
            quantize_model(model, q)
            h = None if act is None else ActQuant(model, None if act == "dynamic" else act)
            rows, kls, flips = [], 0.0, 0
            for w, lp in zip(wins, lps):
                l2 = torch.log_softmax(model(input_ids=torch.tensor([w])).logits[0, :-1], -1)
                rows.append(-l2.double().gather(1, torch.tensor(w[1:])[:, None]).sum().item())
                for a, b in zip(lp.split(64), l2.split(64)):
                    a = a.double()
                    kls += (a.exp() * (a - b.double())).sum().item()
                flips += (lp.argmax(-1) != l2.argmax(-1)).sum().item()
            r[name] = dict(summary(rows, r["scored"]), mean_kl=float(f"{kls / r['scored']:.7g}"), top1_differs=float(f"{flips / r['scored']:.5g}"))
            print(fn, name, {k: v for k, v in r[name].items() if k != "window_nll_sum"}, f"{time.time() - t:.0f} s", flush=True)
    (out / "eval.json").write_text(json.dumps({
        "method": "whole file tokenised at once without special tokens; consecutive windows of 1024 tokens, no overlap, the last one shorter "
                  "(kept if at least 2 tokens); each window is its own sequence from position 0; every token but the first of a window is "
                  "scored; nll = sum over all scored tokens / their number (natural logarithm), perplexity = exp(nll); mean_kl = mean over "
                  "the scored positions of KL(bf16 || variant) over the whole vocabulary; top1_differs = share of positions with another argmax",
        "policy": "BF16 weights widened to float32 (or their NVFP4 value), float32 throughout, eager attention; log-softmax float32, sums float64",
        "variants": {"nvfp4_w4a16": "every linear but the head, weights rounded to nearest by profile D, activations float32",
                     "nvfp4_w4a4_static": "the same weights; every linear's input quantized per block of 16 with the static g of input_scales.json (profile A, IEEE division)",
                     "nvfp4_w4a4_dynamic": "the same, but g = amax/2688 of the whole input of each call (one call per window)",
                     "four_over_six_w4a16": four_over_six.__doc__, "mse_scale_w4a16": mse_scale.__doc__},
        "made_by": common.versions(), "files": res}, indent=1) + "\n")


def summary(rows, n):
    nll = sum(rows) / n
    return {"nll": float(f"{nll:.9g}"), "perplexity": float(f"{torch.tensor(nll, dtype=torch.float64).exp().item():.9g}"),
            "window_nll_sum": [float(f"{x:.9g}") for x in rows]}


def do_export(args):
    scales = json.loads((pathlib.Path(args.out) / "input_scales.json").read_text())["g"]
    src = pathlib.Path(args.model)
    t = load_file(src / "model.safetensors")
    lin = [n for n in t if n.endswith("_proj.weight")]
    for n in lin:
        p, s, g = common.quantize_modelopt(t.pop(n))
        b = n[:-len(".weight")]
        t.update({n: p, b + ".weight_scale": s, b + ".weight_scale_2": g, b + ".input_scale": torch.tensor(scales[b], dtype=torch.float32)})
    config = json.loads((src / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt", "version": "0.0"}, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                                      "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}}
    extra = {n: json.loads((src / n).read_text(encoding="utf-8")) for n in ("tokenizer.json", "tokenizer_config.json", "generation_config.json")}
    extra["hf_quant_config.json"] = {"producer": {"name": "modelopt", "version": "0.0"}, "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head"]}}
    common.write_checkpoint(args.to, dict(sorted(t.items())), config, extra)


def do_tokenizer(args):
    import tokenizers
    import tokenizers_train
    f = pathlib.Path(args.model) / "tokenizer.json"
    t, j = Tokenizer.from_file(str(f)), json.loads(f.read_text(encoding="utf-8"))
    enc, dec = tokenizers_train.cases(t, j, 500)
    lines = lambda x: ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in x)
    (pathlib.Path(args.out) / "tokenizer_cases.json").write_text(
        f'{{"made_by": "tokenizers {tokenizers.__version__}", "seed": 500,\n"encode": [\n{lines(enc)}\n],\n"decode": [\n{lines(dec)}\n]}}\n', encoding="utf-8")


# ------------------------------------------------------------------ how eval.txt was made

OPENINGS = [
    "The harbour of the old town lies on the north side of the bay. In winter",
    "To bake a simple loaf of bread you need flour, water, salt and yeast. First",
    "The history of the lighthouse begins with",
    "Water boils at a lower temperature on a mountain because",
    "Dear Margaret,\n\nThank you for your letter of last week. The garden",
    "Chapter 1\n\nThe train left the station twenty minutes late, and nobody on the platform",
    "A prime number is a whole number greater than one that",
    "The city council met on Thursday evening to discuss the new bridge.",
    "Bees communicate the position of flowers to each other by",
    "In order to repair a bicycle tyre, begin by",
    "The library was quiet except for the sound of",
    "Copper, tin and iron were the first metals that people learned to",
]


@torch.no_grad()
def do_text(args):
    torch.manual_seed(20260101)
    torch.set_num_threads(2)
    tok = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    m = load(args.model)
    texts = []
    for part in (OPENINGS[:6], OPENINGS[6:]):
        enc = tok(part, return_tensors="pt", padding=True)
        gen = m.generate(input_ids=enc["input_ids"], attention_mask=enc["attention_mask"], do_sample=True, temperature=0.8, top_p=0.95,
                         max_new_tokens=480, suppress_tokens=list(range(17)))
        texts += [tok.decode(g, skip_special_tokens=True) for g in gen]
    for t in texts:
        print(len(t), repr(t[:100]))
    # the kept file lacks two paragraphs and is not made again
    (pathlib.Path(args.out) / "eval.txt").write_text("\n\n\n".join(t.rsplit(".", 1)[0].strip() + "." for t in texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=["greedy", "nvfp4", "eval", "export", "tokenizer", "text"])
    ap.add_argument("--model", required=True)
    ap.add_argument("--prompts", default=str(pathlib.Path(__file__).parent / "smollm2_prompts.json"))
    ap.add_argument("--out", default=str(common.GOLDEN / "smollm2"))
    ap.add_argument("--to")
    a = ap.parse_args()
    globals()["do_" + a.what](a)
