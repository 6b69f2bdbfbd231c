"""Bad input through the whole program: one sentence, the status of docs/cli.md, nothing written. Rows and cases are
those of docs/bad-inputs.md; the library's own tests hold the sentences in detail."""
import json
import os
import shutil
import struct
import subprocess
import time

import pytest

from conftest import GOLDEN, Safetensors, write_safetensors

PLAIN, NVFP4 = "llama3", "modelopt-llama3-shared"
DOWN = "model.layers.0.mlp.down_proj."
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def tensors_of(path):
    file = Safetensors(path)
    file.header.pop("__metadata__", None)
    return {name: [e["dtype"], e["shape"], file.body[e["data_offsets"][0]:e["data_offsets"][1]]] for name, e in file.header.items()}


def model(at, base, tensors=None, config=None, sidecar=None):
    """A copy of a golden model; the functions change its tensors, config.json and hf_quant_config.json in place."""
    at.mkdir()
    all_tensors = tensors_of(GOLDEN / base / "model.safetensors")
    if tensors:
        tensors(all_tensors)
    write_safetensors(at / "model.safetensors", all_tensors)
    for name, change in (("config.json", config), ("hf_quant_config.json", sidecar)):
        if (GOLDEN / base / name).exists():
            content = json.loads((GOLDEN / base / name).read_text())
            if change:
                change(content)
            (at / name).write_text(json.dumps(content))
    return at


def raw_model(at, data):
    at.mkdir()
    shutil.copy(GOLDEN / PLAIN / "config.json", at)
    (at / "model.safetensors").write_bytes(data)
    return at


def with_header(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def refused(sextant, tmp_path, path, status, commands=("run", "quantize")):
    """Every command refuses with that status and one line; nothing is written. Returns run's line."""
    ids = tmp_path / "ids"
    ids.write_text("1 2 3 4")
    lines = {}
    for command in commands:
        arguments = {"run": ["run", path, "--ids", ids, "--max-tokens", "2"], "quantize": ["quantize", path, tmp_path / "out"],
                     "inspect": ["inspect", path]}[command]
        lines[command] = sextant.fails(status, *arguments)
        assert "\n" not in lines[command] and "\x1b" not in lines[command]
        assert not any(entry.name.startswith((".out", "out")) for entry in tmp_path.iterdir())
    return lines[commands[0]]


FILES = {  # row or case: bytes of model.safetensors, what the sentence must hold
    "row01 empty": (b"", "too short"),
    "row01 three bytes": (b"abc", "too short"),
    "row02": (b"\xff" * 8 + b"{}", "longer than the file"),
    "row04": (with_header(b"{}", length=10**6), "1000000"),
    "row05": (struct.pack("<Q", 0) + b"xx", "header"),
    "row07": (with_header(b'{"a\x80":1}'), "UTF-8"),
    "row08": (with_header(b"\xef\xbb\xbf{}"), "byte-order mark"),
    "row09": (with_header([]), "object"),
    "row10": (with_header(b'{"a":'), "model.safetensors"),
    "row11": (with_header(b'{"a":' + b"[" * 100000), "deep"),
    "row12": (with_header(b'{"a":%(e)s,"a":%(e)s}' % {b"e": json.dumps(ONE).encode()}, b"\0" * 4), "duplicate"),
    "row14": (with_header({"a": ONE, "b": {**ONE, "data_offsets": [3, 7]}}, b"\0" * 7), "overlap"),
    "row15": (with_header({"a": ONE, "b": {**ONE, "data_offsets": [5, 9]}}, b"\0" * 9), "hole"),
    "row17": (with_header({"a": {**ONE, "data_offsets": [4, 0]}}, b"\0" * 4), "a"),
    "row18": (with_header({"a": {**ONE, "data_offsets": [0, "4"]}}, b"\0" * 4), "data_offsets"),
    "row19": (with_header({"a": {**ONE, "shape": [2**32, 2**32, 2]}}, b"\0" * 4), "overflow"),
    "row21": (with_header({"a": {**ONE, "shape": [2]}}, b"\0" * 4), "8"),
    "row22": (with_header({"a": {**ONE, "shape": [1] * 1000000}}, b"\0" * 4), "rank"),
    "row24": (with_header({"a": {**ONE, "dtype": "f32"}}, b"\0" * 4), "dtype"),
    "row30": (with_header({"a\nb\x1b[31m\0../x": {**ONE, "shape": [2]}}, b"\0" * 4), "\\"),
    "row31": (with_header({"__metadata__": {"a": 1}, "a": ONE}, b"\0" * 4), "__metadata__"),
    "row41 pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 5\n", "LFS"),
    "row41 page": (b"<!DOCTYPE html><html>...", "HTML"),
    "C073 zip": (b"PK\x03\x04" + b"\0" * 500, "ZIP"),
    "C073 pickle": (b"\x80\x04\x95" + b"\0" * 500, "pickle"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_malformed_file(sextant, tmp_path, name):
    data, words = FILES[name]
    commands = ("run", "inspect", "quantize") if name in ("row01 empty", "row14", "row41 page", "C073 pickle") else ("run",)
    line = refused(sextant, tmp_path, raw_model(tmp_path / "m", data), 3, commands)
    assert words.lower() in line.lower(), line


def test_row16_and_row26_a_file_with_bytes_too_many_or_too_few(sextant, tmp_path):
    data = (GOLDEN / PLAIN / "model.safetensors").read_bytes()
    assert "trailing" in refused(sextant, tmp_path, raw_model(tmp_path / "more", data + b"\0" * 16), 3, ("run", "inspect", "quantize"))
    refused(sextant, tmp_path, raw_model(tmp_path / "fewer", data[:-1]), 3, ("run", "inspect", "quantize"))


def test_row27_a_file_that_shrinks_while_it_is_read(sextant, tmp_path):
    large = ["BF16", [4096, 32768], b"\x00\x3c" * (4096 * 32768)]
    path = model(tmp_path / "m", PLAIN, lambda t: t.update({"model.layers.0.mlp.extra.weight": large}))
    running = sextant.start("quantize", path, tmp_path / "out", "-j", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while not list(tmp_path.glob(".out.sextant-tmp*")) and running.poll() is None and time.time() < deadline:
        time.sleep(0.005)
    os.truncate(path / "model.safetensors", 1 << 20)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (3, ""), err
    assert [line for line in err.splitlines() if "error" in line][0].startswith("sextant: error: "), err
    assert not (tmp_path / "out").exists()
    shutil.rmtree(path)
    # What the interrupted run left goes at the next.
    assert sextant("quantize", model(tmp_path / "m", PLAIN), tmp_path / "out").returncode == 0
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize("damage", ["gone", "empty"])
def test_C068_and_row146_a_shard_that_is_missing_or_empty(sextant, tmp_path, damage):
    path = shutil.copytree(GOLDEN / "modelopt-llama3-separate", tmp_path / "m")
    shard = path / "model-00002-of-00002.safetensors"
    shard.unlink() if damage == "gone" else shard.write_bytes(b"")
    assert "model-00002-of-00002" in refused(sextant, tmp_path, path, 3, ("run", "inspect", "quantize"))


@pytest.mark.parametrize("name", ["../../outside.safetensors", "/etc/passwd", "a\\b.safetensors", "a\0b"])
def test_row36_an_index_that_names_files_outside(sextant, tmp_path, name):
    path = shutil.copytree(GOLDEN / "modelopt-llama3-separate", tmp_path / "m")
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["weight_map"][next(iter(index["weight_map"]))] = name
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "shard name" in refused(sextant, tmp_path, path, 3)


def test_row37_a_fifo_and_a_device_in_place_of_a_file(sextant, tmp_path):
    path = raw_model(tmp_path / "m", b"")
    (path / "model.safetensors").unlink()
    os.mkfifo(path / "model.safetensors")
    assert "FIFO" in refused(sextant, tmp_path, path, 3)
    (path / "model.safetensors").unlink()
    (path / "model.safetensors").symlink_to("/dev/zero")
    refused(sextant, tmp_path, path, 3)


CONFIGS = {  # row: fields of config.json, status, words
    "row42 negative": ({"num_hidden_layers": -1}, 3, "num_hidden_layers"),
    "row42 huge": ({"num_hidden_layers": 2**31}, 3, "num_hidden_layers"),
    "row42 fraction": ({"num_hidden_layers": 1.5}, 3, "num_hidden_layers"),
    "row42 text": ({"num_hidden_layers": "32"}, 3, "num_hidden_layers"),
    "row43 heads": ({"num_attention_heads": 0}, 3, "num_attention_heads"),
    "row43 vocabulary": ({"vocab_size": 100}, 2, "100"),
    "row44 theta": ({"rope_theta": 0, "rope_parameters": None}, 3, "theta"),
    "row46": ({"architectures": ["Foo"], "model_type": "foo", "auto_map": {"AutoModel": "x.py"}}, 4, "LlamaForCausalLM"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_makes_no_model(sextant, tmp_path, name):
    fields, status, words = CONFIGS[name]
    path = model(tmp_path / "m", PLAIN, config=lambda c: c.update(fields))
    assert words in refused(sextant, tmp_path, path, status, ("run",))


@pytest.mark.parametrize("text", ["", "[]", "// hi\n{}", "{},", '{"a": NaN}', "\ufeff{}"])
def test_row48_a_config_that_is_no_json(sextant, tmp_path, text):
    path = model(tmp_path / "m", PLAIN)
    (path / "config.json").write_text(text)
    assert "config.json" in refused(sextant, tmp_path, path, 3)


def test_row49_ids_without_embedding_rows(sextant, tmp_path, talker):
    path = shutil.copytree(talker, tmp_path / "m")
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["beyond"] = 5000
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    line = refused(sextant, tmp_path, path, 2, ("run",))
    assert "5000" in line and "P9" in line
    assert sextant("run", path, "Hi", "--max-tokens", "2", "--allow", "P9").returncode == 0


@pytest.mark.parametrize("wish", [{"temperature": -1}, {"top_p": 0}, {"top_k": -5}, {"top_p": "x"}, {"min_p": 2}, {"repetition_penalty": 0}])
def test_row54_a_wish_of_generation_config_that_nobody_can_follow(sextant, tmp_path, wish):
    path = model(tmp_path / "m", PLAIN)
    (path / "generation_config.json").write_text(json.dumps(wish))
    (tmp_path / "ids").write_text("1 2 3")
    done = sextant("run", path, "--ids", tmp_path / "ids", "--max-tokens", "2")
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1 and "generation_config.json" in warnings[0] and next(iter(wish)) in warnings[0]


@pytest.mark.parametrize("source", ["{% for %}", "{{ messages|nofilter }}", "{{ 'a' * 100000000000 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"])
def test_row55_to_57_a_template_that_fails(sextant, tmp_path, talker, source):
    path = shutil.copytree(talker, tmp_path / "m")
    (path / "chat_template.jinja").write_text(source)
    sextant.fails(3, "run", path, "Hi", "--max-tokens", "2")
    assert sextant("run", path, "Hi", "--max-tokens", "2", "--raw").returncode == 0


def set_bytes(name, value):
    return lambda tensors: tensors[name].__setitem__(2, value)


def patch(name, at, byte):
    def change(tensors):
        data = bytearray(tensors[name][2])
        data[at] = byte
        tensors[name][2] = bytes(data)
    return change


def without(name):
    return lambda tensors: tensors.pop(name)


MODELS = {  # case: change of an NVFP4 model, words. All are status 2.
    "C005 NaN block scale": (patch(DOWN + "weight_scale", 7, 0x7F), "C1 "),
    "C013 no global scale": (without(DOWN + "weight_scale_2"), "weight_scale_2"),
    "C014 NaN": (set_bytes(DOWN + "weight_scale_2", struct.pack("<f", float("nan"))), "weight_scale_2"),
    "C014 zero": (set_bytes(DOWN + "weight_scale_2", struct.pack("<f", 0)), "weight_scale_2"),
    "C014 negative": (set_bytes(DOWN + "weight_scale_2", struct.pack("<f", -0.5)), "weight_scale_2"),
    "no weight": (without(DOWN + "weight"), DOWN),
    "extra tensor": (lambda t: t.update({"model.layers.0.mlp.nonsense.weight": ["F32", [2, 2], b"\0" * 16]}), "nonsense"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_errors(sextant, tmp_path, name):
    change, words = MODELS[name]
    assert words in refused(sextant, tmp_path, model(tmp_path / "m", NVFP4, change), 2, ("run",)) + " "


def test_allow_takes_what_the_user_accepts_and_nothing_else(sextant, tmp_path):
    path = model(tmp_path / "m", NVFP4, MODELS["extra tensor"][0])
    (tmp_path / "ids").write_text("1 2 3")
    run = ["run", path, "--ids", tmp_path / "ids", "--max-tokens", "2"]
    assert "--allow C16:" in sextant.fails(2, *run)
    assert sextant(*run, "--allow", "C16:*.nonsense.weight").returncode == 0
    sextant.fails(2, *run, "--allow", "C16:*.other.weight")
    sextant.fails(2, *run, "--allow", "C15")
    sextant.fails(64, *run, "--allow", "nonsense")
    shutil.rmtree(path)
    model(path, NVFP4, MODELS["C005 NaN block scale"][0])
    # Accepted at the load, the NaN is still never a token: the first bad tap is named.
    line = sextant.fails(2, *run, "--allow", "C1:" + DOWN + "*")
    assert "model.layers.0.mlp" in line or "layer 0" in line, line


def test_C101_logits_that_are_no_numbers_name_the_first_bad_tap(sextant, tmp_path):
    def nan_in_layer_1(tensors):
        data = bytearray(tensors["model.layers.1.mlp.up_proj.weight"][2])
        data[10:12] = b"\xc0\x7f"
        tensors["model.layers.1.mlp.up_proj.weight"][2] = bytes(data)
    path = model(tmp_path / "m", "llama2", nan_in_layer_1)
    (tmp_path / "ids").write_text("1 2 3 4")
    line = sextant.fails(2, "run", path, "--ids", tmp_path / "ids", "--max-tokens", "2", "--temperature", "0")
    assert "1.mlp" in line or "layer 1" in line, line
    sextant.fails(2, "eval", path, "--ids", tmp_path / "ids", "--window", "4")


CONTRADICTIONS = {  # case: what changes; the stored bytes win, with a warning
    "C047 the two configs differ": dict(sidecar=lambda s: s["quantization"].update(exclude_modules=[])),
    "C050 a pattern matches nothing": dict(
        config=lambda c: c["quantization_config"].update(ignore=["model.visual*", "lm_head"]),
        sidecar=lambda s: s["quantization"].update(exclude_modules=["model.visual*", "lm_head"])),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_config_that_contradicts_the_files_warns(sextant, tmp_path, name):
    path = model(tmp_path / "m", NVFP4, **CONTRADICTIONS[name])
    (tmp_path / "ids").write_text("1 2 3")
    done = sextant("run", path, "--ids", tmp_path / "ids", "--max-tokens", "2")
    assert done.returncode == 0, done.stderr
    assert "warning" in done.stderr and " P" in done.stderr, done.stderr


def test_files_of_other_formats_are_named(sextant, tmp_path):
    for name, data in (("x.gguf", b"GGUF" + b"\0" * 100), ("x.onnx", b"\x08\x07\x12\x07pytorch"), ("x.zip", b"PK\x03\x04aaaaaaaa")):
        (tmp_path / name).write_bytes(data)
        assert name in sextant.fails(4, "run", tmp_path / name, "Hi")
    assert "directory" in refused(sextant, tmp_path, GOLDEN / PLAIN / "model.safetensors", 3, ("run",))


def test_a_hub_folder_serves_every_command(sextant, tmp_path, talker):
    folder = tmp_path / "models--me--talker"
    shutil.copytree(talker, folder / "snapshots" / "abc")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    assert sextant("tokenize", folder, "Hi", "--ids").stdout == sextant("tokenize", talker, "Hi", "--ids").stdout
    assert sextant("run", folder, "Hi", "--max-tokens", "2").returncode == 0
    assert sextant("inspect", folder).returncode == 0


@pytest.mark.parametrize("arguments, status, words", [
    (["version", "--isa", "sse9"], 4, "sse9"), (["inspect", "M", "--policy", "rubbish"], 64, "rubbish"),
    (["inspect", "M", "--policy", "a4:static*0"], 64, "headroom"), (["version", "--profile", "exact"], 4, "--profile"),
    (["run", "M", "Hi", "--seed", "-1"], 64, "from 0 on"), (["run", "M", "Hi", "--temperature", "hot"], 64, "a number"),
    (["quantize", "M", "OUT", "--recipe", "r.json"], 4, "--recipe"), (["quantize", "M", "OUT", "--calibration", "t"], 4, "weights only"),
])
def test_options_are_checked_by_every_command(sextant, tmp_path, arguments, status, words):
    values = {"M": GOLDEN / PLAIN, "OUT": tmp_path / "out"}
    assert words in sextant.fails(status, *[values.get(a, a) for a in arguments])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", ["010", "08", "-010", "1e3", "3000000000000000000000"])
def test_a_number_means_what_it_says_or_is_refused(sextant, talker, number):
    sextant.fails(64, "run", talker, "Hi", "--max-tokens", number)


def test_a_repeatable_option_takes_one_value_and_leaves_the_rest(sextant, talker):
    expected = sextant("run", talker, "Hi", "--max-tokens", "4", "--temperature", "0", "--policy", "f32", "-q").stdout
    done = sextant("run", "--policy", "f32", "--stop", "[never,seen]", talker, "Hi", "--max-tokens", "4", "--temperature", "0", "-q")
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.mark.parametrize("gate", ["nan", "inf", "-1"])
def test_a_gate_that_holds_nothing_is_refused(sextant, tmp_path, gate):
    (tmp_path / "ids").write_text("1 2 3 4")
    sextant.fails(64, "eval", GOLDEN / PLAIN, "--ids", tmp_path / "ids", "--max-ppl", gate)


def test_do_sample_false_takes_the_most_likely_token(sextant, tmp_path):
    path = model(tmp_path / "m", PLAIN)
    (tmp_path / "ids").write_text("1 2 3")
    run = ["run", path, "--ids", tmp_path / "ids", "--max-tokens", "12", "-q"]
    greedy = sextant(*run, "--temperature", "0").stdout
    (path / "generation_config.json").write_text(json.dumps({"do_sample": False, "temperature": 1.5, "top_k": 3}))
    assert sextant(*run).stdout == greedy


def test_o_writes_into_what_is_there_and_never_replaces_it(sextant, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE, text=True)
    assert sextant("version", "-o", fifo).returncode == 0
    assert reader.communicate(timeout=20)[0].startswith("sextant ") and fifo.is_fifo()
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "link.partial").write_text("mine")
    assert sextant("version", "-o", tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text().startswith("sextant ")
    assert (tmp_path / "link.partial").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "link", "link.partial", "target"]


def test_force_replaces_a_checkpoint_and_nothing_else(sextant, tmp_path):
    home = tmp_path / "home-of-somebody"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    line = sextant.fails(64, "quantize", GOLDEN / PLAIN, home, "--force")
    assert "other things" in line and (home / "letter.txt").read_text() == "dear"
    assert sextant("quantize", GOLDEN / PLAIN, tmp_path / "out").returncode == 0
    assert sextant("quantize", GOLDEN / PLAIN, tmp_path / "out", "--force").returncode == 0
