"""sextant calibrate: numbers against numpy, against trace and against the dumps' routers; the file; what it refuses."""
import hashlib
import json
import shutil
import struct

import jsonschema
import numpy as np
import pytest
from conftest import ROOT, Safetensors

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/scales.schema.json").read_text()))


def write_ids(path, ids):
    path.write_text(json.dumps([int(i) for i in ids]))
    return path


def calibrated(sextant, model, *args, out):
    done = sextant("calibrate", model, *args, "-o", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    document = json.loads(out.read_text())
    SCHEMA.validate(document)
    return document, done.stderr


def array(file, name):
    entry = file.header[name]
    raw = file.body[slice(*entry["data_offsets"])]
    if entry["dtype"] == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").reshape(entry["shape"])
    return np.frombuffer(raw, {"F32": "<f4", "I64": "<i8", "U8": "u1"}[entry["dtype"]]).reshape(entry["shape"])


def scalar(file, name):
    return float(array(file, name).reshape(()))


def check_input(entry, x, tolerance):
    """A module's numbers are those of x, [rows, columns]."""
    measured, size = entry["measured"], np.abs(x).reshape(-1).astype(np.float64)
    assert measured["rows"] == x.reshape(-1, x.shape[-1]).shape[0]
    assert measured["amax"] == pytest.approx(size.max(), rel=tolerance)
    assert measured["rms"] == pytest.approx(np.sqrt((size ** 2).mean()), rel=tolerance)
    ordered = np.sort(size)
    for name, value in measured["percentiles"].items():
        exact = ordered[int(np.ceil(float(name) / 100 * size.size)) - 1]
        assert exact * (1 - tolerance) <= value <= exact * (1 + 1 / 32) * (1 + tolerance), name


@pytest.mark.parametrize("name", ["llama2", "qwen3", "modelopt-llama3-separate", "modelopt-qwen3-moe", "qwen3-moe", "fp8-block-llama"])
def test_inputs_are_those_of_numpy(sextant, golden, tmp_path, name):
    """q, k and v of each layer take the normed hidden state, which the dump has; the head takes the last one, normed."""
    dump = Safetensors(golden / name / "dump.safetensors")
    config = json.loads((golden / name / "config.json").read_text())
    ids = write_ids(tmp_path / "ids.json", array(dump, "input_ids").reshape(-1))
    document, _ = calibrated(sextant, golden / name, "--ids", ids, "--window", 48, "--policy", "f32", out=tmp_path / "scales.json")
    files = [Safetensors(path) for path in sorted((golden / name).glob("model*.safetensors"))]

    def normed(hidden, weight):
        file = next(f for f in files if weight in f.header)
        x = array(dump, hidden).astype(np.float64)
        return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * array(file, weight).astype(np.float64)

    for layer in range(config["num_hidden_layers"]):
        # The first layer's input comes from exact embeddings; later ones carry the rounding of what is before them.
        x, tolerance = normed(f"hidden.{layer}", f"model.layers.{layer}.input_layernorm.weight"), 1e-6 if layer == 0 else 2e-4
        for part in ("q_proj", "k_proj", "v_proj"):
            check_input(document["modules"][f"model.layers.{layer}.self_attn.{part}"], x, tolerance)
    check_input(document["modules"]["lm_head"], normed(f"hidden.{config['num_hidden_layers']}", "model.norm.weight"), 2e-4)
    assert document["text"]["sha256"] == hashlib.sha256(ids.read_bytes()).hexdigest()
    assert (document["text"]["tokens"], document["text"]["sequences"]) == (96, 2)
    for entry in document["modules"].values():
        stored = entry["stored"]["amax"] if entry["stored"] else 0
        assert entry["g"] == pytest.approx(max(8 * entry["measured"]["amax"], stored) / 2688, rel=1e-7)
        assert entry["source"] == ("measured" if 8 * entry["measured"]["amax"] > stored else "stored")


@pytest.mark.parametrize("name", ["modelopt-llama-mixed", "modelopt-qwen3-moe"])
def test_every_linear_as_trace_measures_it(sextant, golden, tmp_path, name):
    ids = write_ids(tmp_path / "ids.json", array(Safetensors(golden / name / "dump.safetensors"), "input_ids")[0])
    document, _ = calibrated(sextant, golden / name, "--ids", ids, out=tmp_path / "scales.json")
    seen = 0
    for tap in sextant.json("trace", golden / name, "--ids", ids)["taps"]:
        if tap["tap"] != "input" or tap["module"] == "lm_head":  # trace asks for the last token's logits only
            continue
        entry, seen = document["modules"][tap["module"]], seen + 1
        assert entry["measured"]["amax"] == tap["amax"] and entry["measured"]["rows"] == tap["rows"]
        assert entry["measured"]["rms"] == pytest.approx(tap["rms"], rel=1e-12)
        if tap["input"]["scale"] is None:
            assert entry["stored"] is None
        else:
            assert entry["stored"]["g"] == tap["input"]["scale"]
            assert entry["stored"]["amax"] == pytest.approx(tap["input"]["calibrated_amax"], rel=1e-6)
    reached = sum(entry["measured"] is not None for entry in document["modules"].values())
    assert seen == reached - 1


@pytest.mark.parametrize("name", ["qwen3-moe", "qwen3-moe-mixed"])
def test_tokens_of_experts_are_those_of_the_dump(sextant, golden, tmp_path, name):
    dump = Safetensors(golden / name / "dump.safetensors")
    ids = write_ids(tmp_path / "ids.json", array(dump, "input_ids").reshape(-1))
    document, said = calibrated(sextant, golden / name, "--ids", ids, "--window", 48, "--policy", "f32", out=tmp_path / "scales.json")
    layers = sorted(int(t.split(".")[1]) for t in dump.header if t.startswith("router.") and t.endswith(".ids"))
    n_experts = array(Safetensors(golden / name / "model.safetensors"), f"model.layers.{layers[0]}.mlp.gate.weight").shape[0]
    assert [entry["layer"] for entry in document["experts"]] == layers
    for entry in document["experts"]:
        assert entry["tokens"] == np.bincount(array(dump, f"router.{entry['layer']}.ids").reshape(-1), minlength=n_experts).tolist()
    assert document["unreached"] == [] and "no quantized linear" in said


def test_experts_that_no_token_chose(sextant, golden, tmp_path):
    """One token twice reaches two of six experts a layer. Expert 2 of layer 1 has no input_scale (tests/golden/README.md)."""
    model = golden / "modelopt-qwen3-moe"
    token = int(array(Safetensors(model / "dump.safetensors"), "input_ids")[1][0])
    ids = write_ids(tmp_path / "ids.json", [token, token])
    document, said = calibrated(sextant, model, "--ids", ids, out=tmp_path / "scales.json")
    tokens = {entry["layer"]: entry["tokens"] for entry in document["experts"]}
    unreached = {(entry["layer"], entry["expert"]): entry["source"] for entry in document["unreached"]}
    assert set(unreached) == {(layer, expert) for layer in tokens for expert in range(6) if tokens[layer][expert] == 0}
    assert unreached[1, 2] == "peer-max" and set(unreached.values()) == {"stored", "peer-max"}
    weights = Safetensors(model / "model.safetensors")
    for layer, expert in unreached:
        for part in ("gate_proj", "up_proj", "down_proj"):
            module = f"model.layers.{layer}.mlp.experts.{expert}.{part}"
            entry = document["modules"][module]
            assert entry["measured"] is None
            if (layer, expert) == (1, 2):
                peers = [document["modules"][f"model.layers.1.mlp.experts.{e}.{part}"]["g"] for e in range(6) if e != 2]
                assert entry["source"] == "peer-max" and entry["g"] == max(peers) and entry["stored"] is None
            else:
                assert entry["source"] == "stored" and entry["g"] == scalar(weights, f"{module}.input_scale")
    assert f"no token chose {len(unreached)} experts" in said and "layer 1 expert 2 (peer-max)" in said
    summary = sextant.json("calibrate", model, "--ids", ids, "-o", tmp_path / "again.json")
    assert summary["unreached"] == document["unreached"] and summary["output"] == str(tmp_path / "again.json")
    assert sum(summary["sources"].values()) == summary["linears"] == len(document["modules"])
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "scales.json").read_bytes()


def test_the_larger_of_calibrated_and_stored(sextant, golden, tmp_path):
    # Its input_scale is a quarter of what was calibrated: stored is too small even without headroom.
    model = golden / "modelopt-llama3-shared"
    ids = write_ids(tmp_path / "ids.json", array(Safetensors(model / "dump.safetensors"), "input_ids").reshape(-1))
    small, said = calibrated(sextant, model, "--ids", ids, "--window", 48, "--headroom", 1, out=tmp_path / "a.json")
    assert "stored scales are for less than this text reaches" in said
    assert all(e["source"] == "measured" for e in small["modules"].values())
    # Input scales of this one cover every input: with headroom 1 what is stored is kept, with the file's bits.
    model = golden / "modelopt-llama3-separate"
    ids = write_ids(tmp_path / "ids2.json", array(Safetensors(model / "dump.safetensors"), "input_ids")[0][:8])
    large, _ = calibrated(sextant, model, "--ids", ids, "--headroom", 1, out=tmp_path / "b.json")
    files = [Safetensors(path) for path in model.glob("model*.safetensors")]
    kept = [module for module, entry in large["modules"].items() if entry["source"] == "stored"]
    assert "model.layers.0.self_attn.q_proj" in kept
    for module in kept:
        file = next(f for f in files if f"{module}.input_scale" in f.header)
        assert large["modules"][module]["g"] == scalar(file, f"{module}.input_scale")


def test_builtin_text_through_the_chat_template(sextant, talker, tmp_path):
    document, said = calibrated(sextant, talker, "--text", "builtin", out=tmp_path / "scales.json")
    assert document["text"]["source"] == "builtin" and document["text"]["sequences"] >= 32
    # Bytes are tokens, the template adds two lines, and the longest prompts are cut at 512.
    assert document["text"]["tokens"] < 512 * document["text"]["sequences"]
    assert document["policy"] == ["a16"] and document["headroom"] == 8
    assert document["modules"]["lm_head"]["measured"]["rows"] == document["text"]["tokens"]
    assert "no quantized linear" in said
    two, _ = calibrated(sextant, talker, "--text", "builtin", "--max-windows", 2, out=tmp_path / "two.json")
    assert two["text"]["sequences"] == 2
    hi, why = ("<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n".format(text) for text in ("Hi", "Why is the sky blue?"))
    # A special token is one, every other byte is one.
    assert two["text"]["tokens"] == sum(len(t) - 2 * (len("<|im_start|>") - 1) - (len("<|im_end|>") - 1) for t in (hi, why))


def test_windows_of_a_text(sextant, talker, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("x" * 101)
    document, _ = calibrated(sextant, talker, "--text", text, "--window", 50, out=tmp_path / "scales.json")
    assert (document["text"]["sequences"], document["text"]["tokens"]) == (2, 100)  # a window of one token is left out
    assert document["text"]["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    plain = sextant("calibrate", talker, "--text", text, "--window", 50)
    assert plain.returncode == 0 and json.loads(plain.stdout) == document
    assert json.loads(sextant("calibrate", talker, "--text", text, "--window", 50, "--json").stdout) == document


def test_the_hash_is_the_models(sextant, golden, tmp_path):
    ids = write_ids(tmp_path / "ids.json", [1, 2, 3])
    model = tmp_path / "other name"
    shutil.copytree(golden / "llama2", model)

    def model_hash(path):
        return calibrated(sextant, path, "--ids", ids, out=tmp_path / "scales.json")[0]["model"]["hash"]

    same = model_hash(golden / "llama2")
    assert model_hash(model) == same != model_hash(golden / "llama3")
    data = bytearray((model / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (model / "model.safetensors").write_bytes(bytes(data))
    assert model_hash(model) != same


def test_a_nan_is_named(sextant, golden, tmp_path):
    model = tmp_path / "nan"
    shutil.copytree(golden / "llama2", model)
    file = Safetensors(model / "model.safetensors")
    begin = file.header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0]
    data = bytearray((model / "model.safetensors").read_bytes())
    offset = len(data) - len(file.body) + begin
    data[offset:offset + 2] = struct.pack("<H", 0x7FC0)
    (model / "model.safetensors").write_bytes(bytes(data))
    out = tmp_path / "scales.json"
    text = sextant.fails(2, "calibrate", model, "--ids", write_ids(tmp_path / "ids.json", [1, 2, 3]), "-o", out)
    assert "first bad tensor: up of layer 1 (model.layers.1.mlp.up_proj), row 0, column 0: nan" in text
    assert "the input of model.layers.1.mlp.down_proj is not finite in sequence 0" in text
    assert not out.exists() and list(tmp_path.glob("scales.json*")) == []


def test_what_it_refuses(sextant, golden, talker, tmp_path):
    ids = write_ids(tmp_path / "ids.json", [1, 2, 3])
    out, empty, one = tmp_path / "scales.json", tmp_path / "empty.txt", tmp_path / "one.txt"
    empty.write_text("")
    one.write_text("x")

    def fails(status, *args):
        text = sextant.fails(status, "calibrate", *args)
        assert not out.exists()
        return text

    assert "is empty: expected a text" in fails(3, talker, "--text", empty, "-o", out)
    assert "has 1 token; a window to calibrate on has at least 2" in fails(3, talker, "--text", one, "-o", out)
    assert "has no tokenizer.json" in fails(3, golden / "llama2", "--text", "builtin", "-o", out)
    assert "absent.txt" in fails(3, talker, "--text", tmp_path / "absent.txt", "-o", out)
    assert "found neither" in fails(64, talker, "-o", out)
    assert "found both" in fails(64, talker, "--text", one, "--ids", ids, "-o", out)
    for headroom in ("0.5", "0", "nan", "1025"):
        assert "--headroom: expected a number from 1 to 1024" in fails(64, golden / "llama2", "--ids", ids, "--headroom", headroom)
    assert "but the model takes 128" in fails(64, golden / "llama2", "--ids", ids, "--window", 129, "-o", out)
    assert "token 1 of sequence 0 is 100000" in fails(3, golden / "llama2", "--ids", write_ids(tmp_path / "far.json", [1, 100000]), "-o", out)
    assert "cannot write the output file" in fails(3, golden / "llama2", "--ids", ids, "-o", tmp_path / "absent/scales.json")


def test_a_file_of_the_model_is_not_replaced(sextant, golden, tmp_path):
    ids = write_ids(tmp_path / "ids.json", [1, 2, 3])
    model = tmp_path / "model"
    shutil.copytree(golden / "llama2", model)
    for name in ("config.json", "model.safetensors"):
        before = (model / name).read_bytes()
        assert "file of the model itself" in sextant.fails(64, "calibrate", model, "--ids", ids, "-o", model / name)
        assert (model / name).read_bytes() == before
    done = sextant("calibrate", model, "--ids", ids, "-o", model / "scales.json")
    assert done.returncode == 0 and (model / "scales.json").exists()
