"""sextant compare A B: table, JSON, gate, what it refuses, and what stays in memory."""
import json
import pathlib
import re
import shutil
import subprocess
import time

import jsonschema
import numpy as np
import pytest
from conftest import BIN, ROOT, Safetensors, write_safetensors

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/compare.schema.json").read_text()))
IDS = " ".join(str(7 * i % 300 + 1) for i in range(60))


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text(IDS)
    return path


@pytest.fixture
def nvfp4(sextant, golden, tmp_path):
    assert sextant("quantize", golden / "llama2", tmp_path / "nvfp4").returncode == 0
    return tmp_path / "nvfp4"


def compared(sextant, *args, status=0):
    document = sextant.json("compare", *args, status=status)
    SCHEMA.validate(document)
    return document


def test_a_model_against_itself(sextant, golden, ids):
    model = golden / "llama2"
    document = compared(sextant, model, model, "--ids", ids)
    assert document["verdict"] == "identical" and document["first_difference"] is None and document["divergences"] == []
    assert [stage["stage"] for stage in document["stages"]] == ["embed", "0", "1", "2", "head"]
    assert all(tap["different"] == 0 and tap["relative_l2"] == 0 for stage in document["stages"] for tap in stage["taps"])
    assert document["end"]["mean_kl"] == 0 and document["end"]["top1_agreement"] == 1
    assert (document["tokens"], document["scored"], document["window"]) == (60, 59, 128)  # the model takes no more
    done = sextant("compare", model, model, "--ids", ids)
    assert done.returncode == 0 and "identical: every tap is equal, bit for bit" in done.stdout


def test_the_end_is_that_of_eval(sextant, golden, nvfp4, ids):
    end = compared(sextant, golden / "llama2", nvfp4, "--ids", ids, "--window", 20)["end"]
    scored = sextant.json("eval", nvfp4, "--against", golden / "llama2", "--ids", ids, "--window", 20)
    assert end["perplexity_b"] == scored["perplexity"] and end["perplexity_a"] == scored["against"]["perplexity"]
    for name in ("mean_kl", "mean_kl_reverse", "max_kl", "top1_agreement"):
        assert end[name] == scored["against"][name]


def test_a_quantized_copy_is_explained_and_gates_hold_or_not(sextant, golden, nvfp4, ids):
    document = compared(sextant, golden / "llama2", nvfp4, "--ids", ids)
    assert document["verdict"] == "explained" and document["first_divergence"] is None and document["ok"]
    assert document["first_difference"]["tap"] == "q" and document["end"]["mean_kl"] > 0.01
    kl = document["end"]["mean_kl"]
    assert compared(sextant, golden / "llama2", nvfp4, "--ids", ids, "--max-kl", kl * 1.001)["ok"]
    document = compared(sextant, golden / "llama2", nvfp4, "--ids", ids, "--max-kl", kl * 0.999, status=1)
    assert not document["ok"] and "above the bound" in document["gate"]
    done = sextant("compare", golden / "llama2", nvfp4, "--ids", ids, "--max-kl", kl * 0.999)
    assert done.returncode == 1 and "mean KL" in done.stderr and "streams" in done.stdout
    lines = sextant("compare", golden / "llama2", nvfp4, "--ids", ids, "-v").stdout.splitlines()
    assert any(line.startswith("0.q ") for line in lines) and any(line.startswith("2.hidden ") for line in lines)


def test_two_policies_of_one_model(sextant, nvfp4, ids):
    document = compared(sextant, nvfp4, "--policy-a", "f32", "--policy-b", "a16", "--ids", ids)
    assert document["a"] == {"model": str(nvfp4), "policy": ["f32"]} and document["b"] == {"model": str(nvfp4), "policy": ["a16"]}
    assert document["verdict"] == "explained" and 0 < document["end"]["mean_kl"] < 0.05
    # --policy is of both, and a side's own come after it.
    document = compared(sextant, nvfp4, "--policy", "f32", "--policy-b", "*.mlp.*=a16", "--ids", ids)
    assert document["a"]["policy"] == ["f32"] and document["b"]["policy"] == ["f32", "*.mlp.*=a16"]
    assert document["first_difference"]["tap"] == "gate"
    assert document["first_difference"]["cause"]["kind"] == "policy"


def test_a_nan_is_status_2_and_named(sextant, golden, tmp_path, ids):
    model, tensor = tmp_path / "nan", "model.layers.1.mlp.up_proj.weight"
    shutil.copytree(golden / "llama2", model)
    opened, data = Safetensors(model / "model.safetensors"), bytearray((model / "model.safetensors").read_bytes())
    offset = len(data) - len(opened.body) + opened.header[tensor]["data_offsets"][0] + 2 * (3 * 64 + 5)
    data[offset:offset + 2] = b"\xc0\x7f"
    (model / "model.safetensors").write_bytes(bytes(data))
    for pair, side in (((golden / "llama2", model), "b"), ((model, golden / "llama2"), "a")):
        document = compared(sextant, *pair, "--ids", ids, "--max-kl", "1e9", status=2)
        found = document["first_divergence"]
        assert document["verdict"] == "bad" and not document["ok"] and document["end"]["mean_kl"] == "nan"
        assert (found["tap"], found["layer"], found["cause"]["side"]) == ("up", 1, side)
        assert found["cause"]["tensors"] == [tensor] and found["cause"]["index"] == [3, 5] and str(offset) in found["message"]
    done = sextant("compare", golden / "llama2", model, "--ids", ids)
    assert done.returncode == 2 and f"because: {tensor}[3, 5] is nan (byte {offset}" in done.stdout


def test_text_and_windows(sextant, talker, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcdefghij" * 20)
    document = compared(sextant, talker, talker, "--text", text, "--window", 16, "--max-windows", 3)
    assert (document["tokens"], document["windows"], document["scored"], document["left_out"]) == (48, 3, 45, 152)
    assert "152 more tokens" in sextant("compare", talker, talker, "--text", text, "--window", 16, "--max-windows", 3).stdout
    assert compared(sextant, talker, talker, "--text", text, "--window", 4)["windows"] == 16
    text.write_text("")
    assert "0 tokens" in sextant.fails(3, "compare", talker, talker, "--text", text)
    text.write_text("a")
    assert "1 token " in sextant.fails(3, "compare", talker, talker, "--text", text)


def test_bad_usage(sextant, golden, tmp_path, ids):
    model = golden / "llama2"
    assert "second model" in sextant.fails(64, "compare", model, "--ids", ids)
    assert "found neither" in sextant.fails(64, "compare", model, model)
    assert "found both" in sextant.fails(64, "compare", model, model, "--ids", ids, "--text", ids)
    assert "2 and 3 as num_hidden_layers" in sextant.fails(3, "compare", golden / "qwen3-moe", model, "--ids", ids)
    assert "shapes must be equal" in sextant.fails(3, "compare", model, golden / "qwen3", "--ids", ids)
    assert "tokenizer.json" in sextant.fails(3, "compare", model, model, "--text", ids)
    sextant.fails(64, "compare", model, "--policy-b", "nonsense", "--ids", ids)
    assert "matches none" in sextant.fails(64, "compare", model, "--policy-b", "no.such.*=f32", "--ids", ids)
    sextant.fails(64, "compare", model, model, "--ids", ids, "--max-kl", "-1")
    sextant.fails(64, "compare", model, model, "--ids", ids, "--max-kl", "nan")
    sextant.fails(64, "compare", model, model, "--ids", ids, "--window", "1")
    assert "128" in sextant.fails(64, "compare", model, model, "--ids", ids, "--window", "129")
    bad = tmp_path / "bad.txt"
    bad.write_text("1 2 999999")
    assert "999999" in sextant.fails(3, "compare", model, model, "--ids", bad)
    sextant.fails(64, "compare", model, model, "--dump", model)
    sextant.fails(64, "compare", model, "--dump", model, "--ids", ids)
    assert "need --dump" in sextant.fails(64, "compare", model, model, "--ids", ids, "--prefill-chunk", "2")


def test_only_one_layer_of_each_is_in_memory(sextant, golden, tmp_path):
    """24 layers of 5.9 MB: 284 MB for two whole models. One layer of each, embedding, head, streams and the program are a fraction."""
    n_layers, d, d_ff, vocab = 24, 512, 1408, 320
    rng, tensors = np.random.default_rng(0), {}

    def add(name, *shape):
        values = (rng.standard_normal(shape, dtype=np.float32) * 0.02 if len(shape) == 2 else np.ones(shape, np.float32))
        tensors[name] = ("BF16", list(shape), (values.view(np.uint32) >> 16).astype("<u2").tobytes())

    add("model.embed_tokens.weight", vocab, d)
    for i in range(n_layers):
        layer = f"model.layers.{i}."
        for part, shape in {"q": (d, d), "k": (d // 2, d), "v": (d // 2, d), "o": (d, d)}.items():
            add(f"{layer}self_attn.{part}_proj.weight", *shape)
        for part, shape in {"gate": (d_ff, d), "up": (d_ff, d), "down": (d, d_ff)}.items():
            add(f"{layer}mlp.{part}_proj.weight", *shape)
        add(layer + "input_layernorm.weight", d)
        add(layer + "post_attention_layernorm.weight", d)
    add("model.norm.weight", d)
    add("lm_head.weight", vocab, d)
    model = tmp_path / "deep"
    model.mkdir()
    write_safetensors(model / "model.safetensors", tensors)
    config = json.loads((golden / "llama2/config.json").read_text())
    config |= {"hidden_size": d, "intermediate_size": d_ff, "num_hidden_layers": n_layers, "num_attention_heads": 8,
               "num_key_value_heads": 4, "head_dim": 64, "vocab_size": vocab, "tie_word_embeddings": False}
    (model / "config.json").write_text(json.dumps(config))
    (tmp_path / "ids.txt").write_text(IDS)

    def peak_bytes(*args):
        """What was resident at most, read while it runs: what a parent waits for counts the parent's own memory, too."""
        peak, running = 0, sextant.start(*args, stdout=subprocess.DEVNULL)
        while running.poll() is None:
            status = pathlib.Path(f"/proc/{running.pid}/status").read_text()
            name = status.split(maxsplit=2)[1]
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            if found and name == BIN.name:
                peak = max(peak, int(found[1]) * 1024)
            time.sleep(0.002)
        assert running.returncode == 0
        return peak

    one = ["--ids", tmp_path / "ids.txt", "-q", "-j", "2"]
    whole = peak_bytes("eval", model, "--against", model, "--window", 60, *one)
    stages = peak_bytes("compare", model, model, *one)
    size = (model / "model.safetensors").stat().st_size
    assert size > 140e6 and whole > 1.9 * size  # this way of measuring sees models that are resident
    assert stages < 0.5 * size, (stages, whole, size)
