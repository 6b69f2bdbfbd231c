"""inspect, compare, eval, quantize over the golden models."""
import json
import math
import os
import random
import shutil
import signal
import struct
import time

import pytest
from conftest import GOLDEN, Safetensors, write_safetensors

QUANTIZED = ["modelopt-llama3-shared", "ct-llama3-nvfp4", "modelopt-llama-mixed", "fp8-block-llama"]
EXPERTS = ["qwen3-moe", "qwen3-moe-mixed", "modelopt-qwen3-moe"]


def bf16(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


# inspect


@pytest.mark.parametrize("name", ["llama3", "qwen3-moe", *QUANTIZED])
def test_inspect(sextant, golden, name):
    done = sextant("inspect", golden / name)
    assert done.returncode == 0 and "dialect" in done.stdout and "bits each" in done.stdout
    document = sextant.json("inspect", golden / name)
    header = Safetensors(next((golden / name).glob("model*.safetensors"))).header
    names = {t["name"] for t in document["tensors"]}
    assert set(header) - {"__metadata__"} <= names
    assert document["summary"]["bytes"] == sum(t["bytes"] for t in document["tensors"])
    for tensor in document["tensors"]:
        if tensor["name"] in header:
            assert tensor["shape"] == header[tensor["name"]]["shape"]
            assert tensor["dtype"] == header[tensor["name"]]["dtype"]


def test_inspect_names_dialects_schemes_and_patterns(sextant, golden):
    document = sextant.json("inspect", golden / "modelopt-qwen2-mlp")
    assert document["dialect"] == "modelopt"
    assert set(document["summary"]["linears"]) == {"nvfp4", "bf16"}
    pattern = [p for p in document["patterns"] if p["pattern"] == "model.layers.*.self_attn*"]
    assert pattern and any("q_proj" in module for module in pattern[0]["matched"])
    assert sextant.json("inspect", golden / "ct-llama3-nvfp4")["dialect"] == "compressed-tensors"
    divisor = [x for x in sextant.json("inspect", golden / "ct-llama3-nvfp4")["linears"] if x["ranges"]]
    assert all(r["stored_is"] == "divisor" and math.isclose(r["g"] * r["stored"], 1, rel_tol=1e-6)
               for x in divisor for r in x["ranges"])


def test_inspect_tensor(sextant, golden):
    name = "model.norm.weight"
    document = sextant.json("inspect", golden / "llama3", "--tensor", name, "--first", 4)
    header = Safetensors(golden / "llama3/model.safetensors")
    begin, end = header.header[name]["data_offsets"]
    raw = header.body[begin:end]
    values = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
    assert document["elements"] == len(values) and document["first"] == values[:4]
    assert document["min"] == min(values) and document["max"] == max(values)
    assert math.isclose(document["mean"], sum(values) / len(values), rel_tol=1e-9)
    text = sextant("inspect", golden / "modelopt-llama3-shared", "--tensor", "model.layers.0.mlp.down_proj").stdout
    assert "nvfp4" in text and "rms" in text
    assert "did you mean model.norm.weight?" in sextant.fails(64, "inspect", golden / "llama3", "--tensor", "model.norm.weigh")


def test_broken_files(sextant, golden, tmp_path):
    text = sextant.fails(3, "inspect", tmp_path)
    assert str(tmp_path) in text
    broken = tmp_path / "model"
    shutil.copytree(golden / "llama3", broken)
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:len(whole) // 2])
    assert "model.safetensors" in sextant.fails(3, "inspect", broken)
    assert sextant.json("run", broken, "hi", status=3)["error"]["where"]["file"].endswith("model.safetensors")
    (broken / "model.safetensors").write_bytes(whole)
    (broken / "config.json").write_text("{")
    sextant.fails(3, "run", broken, "hi")
    config = json.loads((golden / "llama3/config.json").read_text())
    config["architectures"] = ["GPT9ForCausalLM"]
    (broken / "config.json").write_text(json.dumps(config))
    text = sextant.fails(4, "run", broken, "--ids", os.devnull)
    assert "GPT9ForCausalLM" in text and "LlamaForCausalLM" in text


def test_a_model_with_errors_is_refused_with_status_2(sextant, golden, tmp_path):
    broken = tmp_path / "model"
    shutil.copytree(golden / "llama3", broken)
    file = Safetensors(golden / "llama3/model.safetensors")
    tensors = {}
    for name, entry in file.header.items():
        if name in ("__metadata__", "model.layers.1.mlp.up_proj.weight"):
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], file.body[begin:end])
    write_safetensors(broken / "model.safetensors", tensors)
    ids = tmp_path / "ids.txt"
    ids.write_text("1 2 3")
    text = sextant.fails(2, "run", broken, "--ids", ids)
    assert "model.layers.1.mlp.up_proj" in text
    assert sextant.json("run", broken, "--ids", ids, status=2)["error"]["code"] == "model"


# compare


@pytest.mark.parametrize("name", ["llama3", "qwen2-window", *EXPERTS, *QUANTIZED])
@pytest.mark.parametrize("how", [[], ["--prefill-chunk", "7"], ["--decode-from", "0"]])
def test_compare_holds(sextant, golden, name, how):
    document = sextant.json("compare", golden / name, "--dump", golden / name, *how)
    assert document["ok"] and not document["unknown"]
    rows = {row["tensor"]: row for row in document["rows"]}
    assert "logits" in rows and all(row["max_abs_diff"] <= row["bound"] for row in rows.values())


def test_compare_holds_the_choice_of_experts(sextant, golden):
    document = sextant.json("compare", golden / "qwen3-moe-mixed", "--dump", golden / "qwen3-moe-mixed")
    rows = {row["tensor"]: row for row in document["rows"]}
    assert [name for name in rows if name.startswith("router.")] == ["router.3.ids", "router.3.weights"]
    assert rows["router.3.ids"]["max_abs_diff"] == 0 and rows["router.3.ids"]["elements"] == 2 * 48 * 2


def test_compare_prints_a_row_each(sextant, golden):
    done = sextant("compare", golden / "llama2", "--dump", golden / "llama2")
    assert done.returncode == 0
    for name in ["logits", "hidden.0", "hidden.1"]:
        assert any(line.startswith(name + " ") and line.endswith("ok") for line in done.stdout.splitlines())


def test_compare_of_another_model_is_over_its_bounds(sextant, golden, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(golden / "llama2", model)
    config = json.loads((model / "config.json").read_text())
    config["rope_theta"] = 500000.0 if config.get("rope_theta") != 500000.0 else 10000.0
    (model / "config.json").write_text(json.dumps(config))
    done = sextant("compare", model, "--dump", golden / "llama2")
    assert done.returncode == 1 and "OVER" in done.stdout
    document = sextant.json("compare", model, "--dump", golden / "llama2", status=1)
    bad = [row for row in document["rows"] if not row["ok"]]
    assert not document["ok"] and bad and all(row["first_over"] is not None for row in bad if row["tensor"] == "logits")
    sextant.fails(3, "compare", model, "--dump", tmp_path / "nothing")
    sextant.fails(3, "compare", model, "--dump", golden / "llama2", "--dump-name", "nothing")


# eval


def expected_nll(directory):
    """From the dump's logits: mean of -log p of each token but the first, over all sequences as windows."""
    dump = Safetensors(directory / "dump.safetensors")
    (n_seqs, n_tokens), ids = dump.values("input_ids")
    (_, _, n_vocab), logits = dump.values("logits")
    total = 0.0
    for s in range(n_seqs):
        for t in range(n_tokens - 1):
            row = logits[(s * n_tokens + t) * n_vocab:(s * n_tokens + t + 1) * n_vocab]
            peak = max(row)
            total -= row[ids[s * n_tokens + t + 1]] - peak - math.log(sum(math.exp(x - peak) for x in row))
    return ids, n_tokens, total / (n_seqs * (n_tokens - 1))


def test_eval_equals_the_dump(sextant, golden, tmp_path):
    ids, window, nll = expected_nll(golden / "llama3")
    file = tmp_path / "ids.json"
    file.write_text(json.dumps(list(ids)))
    args = ["eval", golden / "llama3", "--ids", file, "--window", window, "--policy", "f32"]
    document = sextant.json(*args)
    assert document["windows"] == len(ids) // window and document["scored"] == len(ids) - len(ids) // window
    assert abs(document["nll"] - nll) < 1e-4 and math.isclose(document["perplexity"], math.exp(document["nll"]))
    text = sextant(*args).stdout
    assert f"{document['perplexity']:.4f}" in text and "without overlap" in text

    assert sextant(*args, "--max-ppl", document["perplexity"] * 1.01).returncode == 0
    done = sextant(*args, "--max-ppl", document["perplexity"] * 0.99)
    assert done.returncode == 1 and "sextant: error: " in done.stderr
    assert sextant.json(*args, "--max-ppl", "1.0", status=1)["ok"] is False

    same = sextant.json(*args, "--against", golden / "llama3", "--max-kl", "1e-9")
    assert same["against"]["top1_agreement"] == 1 and same["against"]["mean_kl"] < 1e-9
    sextant.fails(64, *args, "--max-kl", "0.1")
    file.write_text("1 2 100000")
    sextant.fails(3, *args)


# quantize


def source(golden, tmp_path):
    path = tmp_path / "source"
    shutil.copytree(golden / "llama3", path)
    return path


@pytest.mark.parametrize("dialect", ["modelopt", "compressed-tensors"])
@pytest.mark.parametrize("command", ["quantize", "quantise"])
def test_quantize_and_run(sextant, golden, tmp_path, dialect, command):
    target = tmp_path / "target"
    document = sextant.json(command, source(golden, tmp_path), target, "--dialect", dialect)
    assert document["quantized"] == 14 and document["output_bytes"] < document["source_bytes"]
    inspected = sextant.json("inspect", target)
    assert inspected["dialect"] == dialect and inspected["summary"]["linears"]["nvfp4"] == 14
    ids = tmp_path / "ids.txt"
    ids.write_text("1, 5, 9")
    assert sextant("run", target, "--ids", ids, "--max-tokens", "4", "--temperature", "0").returncode == 0
    # A destination that exists is refused, and stays as it is.
    before = sorted((p.name, p.stat().st_mtime_ns) for p in target.iterdir())
    assert str(target) in sextant.fails(64, command, tmp_path / "source", target)
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in target.iterdir())
    assert sextant(command, tmp_path / "source", target, "--force").returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["ids.txt", "source", "target"]


def test_quantize_options(sextant, golden, tmp_path):
    path = source(golden, tmp_path)
    kept = sextant.json("quantize", path, tmp_path / "a", "--keep", "model.layers.0.*", "--max-memory", "64MiB")
    assert kept["quantized"] == 7 and sum("layers.0." in k["module"] for k in kept["kept"]) == 7
    sextant.fails(64, "quantize", path, tmp_path / "b", "--keep", "nothing.like.this")
    sextant.fails(64, "quantize", path, tmp_path / "b", "--max-memory", "lots")
    sextant.fails(64, "quantize", path, path)
    sextant.fails(4, "quantize", path, tmp_path / "b", "--scheme", "nvfp4")
    sextant.fails(4, "quantize", path, tmp_path / "b", "--method", "gptq")
    sextant.fails(4, "quantize", tmp_path / "a", tmp_path / "b")
    sextant.fails(3, "quantize", tmp_path / "nothing", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def big_source(golden, tmp_path, megabytes):
    """llama3 with a large extra weight, so that quantizing takes a while."""
    path = source(golden, tmp_path)
    file = Safetensors(path / "model.safetensors")
    tensors = {}
    for name, entry in file.header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], file.body[begin:end])
    block = bf16(random.Random(1).uniform(-1, 1) for _ in range(1 << 16))
    rows = megabytes * 8
    tensors["extra.weight"] = ("BF16", [rows, 1 << 16], block * rows)
    write_safetensors(path / "model.safetensors", tensors)
    return path


@pytest.mark.parametrize("number,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_quantize_leaves_nothing(sextant, golden, tmp_path, number, status):
    path = big_source(golden, tmp_path, 256)
    before = sorted(os.listdir(tmp_path))
    child = sextant.start("quantize", path, tmp_path / "target")
    deadline = time.monotonic() + 30
    while sorted(os.listdir(tmp_path)) == before and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    child.send_signal(number)
    assert child.wait(30) == status
    assert sorted(os.listdir(tmp_path)) == before


# bench


def test_bench(sextant, golden):
    document = sextant.json("bench", golden / "llama3", "--prompt-tokens", "32", "--max-tokens", "8", "--repetitions", "1")
    assert document["machine"]["threads"][-1]["read_bytes_per_s"] > 1e8
    assert document["model"]["decode_tokens_per_s"] > 0 and document["model"]["prefill_tokens"] == 32
    done = sextant("bench", "--machine")
    assert done.returncode == 0 and "GFLOP/s" in done.stdout
    assert sextant.json("bench", golden / "llama3", "--isa", "sse9", status=4)["error"]["code"] == "unsupported"
