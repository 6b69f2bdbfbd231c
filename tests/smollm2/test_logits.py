"""The real model's logits, one by one: what transformers gave in float32 after the last prompt token (last_logits, with a bound for
each prompt), through `sextant compare --dump`; and that chat prompts are rendered and tokenized as transformers did it.

A dump holds logits of every position, the golden data only those of the last. The rows before it come from a second forward pass,
below: numpy in float32 from the formulas of Llama. Its own last row has to be within the golden bound, too.
"""
import json
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from smollm2 import GOLDEN, PROGRAM, PROMPTS

BOUNDS = json.loads((GOLDEN / "last_logits.json").read_text(encoding="utf-8"))["bounds"]


class Weights:
    """BF16 tensors of a safetensors file as float32, one at a time."""

    def __init__(self, path):
        with open(path, "rb") as file:
            n = int.from_bytes(file.read(8), "little")
            self.header = json.loads(file.read(n))
        self.body = np.memmap(path, np.uint8, "r", 8 + n)

    def __getitem__(self, name):
        begin, end = self.header[name]["data_offsets"]
        bits = self.body[begin:end].view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(self.header[name]["shape"])


def normed(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def turned(x, theta):
    """Rotary embedding, half-split: x [T, heads, d]."""
    half = x.shape[2] // 2
    angle = np.arange(x.shape[0])[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = (f(angle)[:, None].astype(np.float32) for f in (np.cos, np.sin))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v):
    """[T, heads, d] each; query heads share the key heads in groups."""
    n, heads, d = q.shape
    k, v = (x.repeat(heads // x.shape[1], 1).swapaxes(0, 1) for x in (k, v))
    scores = q.swapaxes(0, 1) @ k.swapaxes(1, 2) * np.float32(d ** -0.5)
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(n, -1)


def forward(source, prompts):
    """Logits [T, V] of each list of ids, one by one; the weights are read once."""
    config = json.loads((source / "config.json").read_text())
    w, eps, d = Weights(source / "model.safetensors"), config["rms_norm_eps"], config["head_dim"]
    embedding = w["model.embed_tokens.weight"]  # tied to the head
    states = [embedding[ids] for ids in prompts]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        q, k, v, o = (w[f"{p}self_attn.{m}_proj.weight"].T for m in "qkvo")
        gate, up, down = (w[f"{p}mlp.{m}_proj.weight"].T for m in ("gate", "up", "down"))
        first, second = w[p + "input_layernorm.weight"], w[p + "post_attention_layernorm.weight"]
        for i, h in enumerate(states):
            x = normed(h, first, eps)
            heads = [(x @ m).reshape(len(x), -1, d) for m in (q, k, v)]
            h = h + attention(*(turned(z, config["rope_theta"]) for z in heads[:2]), heads[2]) @ o
            x = normed(h, second, eps)
            g = x @ gate
            states[i] = h + (g / (1 + np.exp(-g)) * (x @ up)) @ down
    for h in states:
        yield normed(h, w["model.norm.weight"], eps) @ embedding.T


def test_logits_after_the_last_prompt_token(source, tmp_path):
    golden = load_file(GOLDEN / "last_logits.safetensors")
    assert set(BOUNDS) == set(golden) == {p["name"] for p in PROMPTS}
    for prompt, logits in zip(PROMPTS, forward(source, [p["ids"] for p in PROMPTS])):
        name, bound = prompt["name"], BOUNDS[prompt["name"]]
        assert np.abs(logits[-1] - golden[name]).max() <= bound, name
        logits[-1] = golden[name]
        save_file({"input_ids": np.array([prompt["ids"]]), "logits": logits[None]}, tmp_path / "dump.safetensors")
        (tmp_path / "dump.json").write_text(json.dumps({"policy": "f32", "bounds": {"logits": bound}}))
        done = subprocess.run([PROGRAM, "compare", source, "--dump", tmp_path, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, (name, done.stdout, done.stderr)


def jsonl(model, lines, *flags):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([PROGRAM, "tokenize", model, "--jsonl", *flags], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_prompts_are_rendered_and_tokenized(source):
    chats = [p for p in PROMPTS if p["kind"] == "chat"]
    assert len(chats) == 7
    asked = [{"messages": p["messages"], "add_generation_prompt": True} for p in chats]
    assert jsonl(source, asked) == [{"text": p["text"]} for p in chats]
    assert jsonl(source, asked, "--ids") == [{"ids": p["ids"]} for p in chats]
    assert jsonl(source, [{"text": p["text"]} for p in PROMPTS]) == [{"ids": p["ids"]} for p in PROMPTS]


@pytest.mark.parametrize("prompt", [p for p in PROMPTS if p["kind"] == "chat"], ids=lambda p: p["name"])
def test_chat_file(prompt, source, tmp_path):
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(prompt["messages"]), encoding="utf-8")
    done = subprocess.run([PROGRAM, "tokenize", source, "--chat", file, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"text": prompt["text"], "ids": prompt["ids"], "count": len(prompt["ids"])}
