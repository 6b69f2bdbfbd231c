"""Program-level tests: the sextant program as scripts and people see it.

Run against $SEXTANT_BIN (default build/test/sextant) over $SEXTANT_GOLDEN (default tests/golden).
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SEXTANT_BIN", ROOT / "build/test/sextant")).resolve()
GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN", ROOT / "tests/golden")).resolve()
COMMANDS = ["run", "quantize", "doctor", "inspect", "explain", "trace", "compare", "calibrate", "eval", "tokenize", "bench", "version", "help", "completion"]


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SEXTANT_") and k != "NO_COLOR"}
    env.update(extra)
    return env


class Program:
    def __init__(self, home):
        self.home = home

    def __call__(self, *args, stdin="", timeout=120, **env):
        env.setdefault("SEXTANT_HOME", str(self.home))
        return subprocess.run([str(BIN), *map(str, args)], input=stdin, capture_output=True, text=True,
                              timeout=timeout, env=environment(**env))

    def start(self, *args, **options):
        return subprocess.Popen([str(BIN), *map(str, args)], env=environment(SEXTANT_HOME=str(self.home)), **options)

    def json(self, *args, status=0, **options):
        """Runs with --json: exactly one document on standard output."""
        done = self(*args, "--json", **options)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def fails(self, status, *args, **options):
        """One error line on standard error, nothing on standard output; returns the line's text."""
        done = self(*args, **options)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert done.stdout == ""
        lines = [line for line in done.stderr.splitlines() if line.startswith("sextant: error: ")]
        assert len(lines) == 1, done.stderr
        return lines[0].removeprefix("sextant: error: ")


@pytest.fixture(scope="session", autouse=True)
def program_is_built():
    assert BIN.exists(), f"{BIN} is missing: build it (./test does), or set SEXTANT_BIN"


@pytest.fixture
def sextant(tmp_path):
    return Program(tmp_path / "home")


@pytest.fixture
def golden():
    return GOLDEN


class Safetensors:
    """Just enough of a reader and a writer."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        self.header = json.loads(data[8:8 + n])
        self.body = data[8 + n:]

    def values(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        code = {"I64": "q", "F32": "f"}[entry["dtype"]]
        raw = self.body[begin:end]
        return entry["shape"], struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)"""
    header, offset = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, raw in tensors.values():
            out.write(raw)


def byte_characters():
    """GPT-2's printable character of every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {}, 0
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + n)
            n += 1
    return table


@pytest.fixture(scope="session")
def talker(tmp_path_factory):
    """A chat model of random weights: llama2 of the golden models with a tokenizer of single bytes (ids 3 to
    258, so that the vocabulary of the model is padded) and a template."""
    directory = tmp_path_factory.mktemp("models") / "talker"
    directory.mkdir()
    shutil.copy(GOLDEN / "llama2/model.safetensors", directory)
    config = json.loads((GOLDEN / "llama2/config.json").read_text())
    assert config["vocab_size"] > 259
    config["max_position_embeddings"] = 4096
    (directory / "config.json").write_text(json.dumps(config))
    special = ["<pad>", "<|im_start|>", "<|im_end|>"]
    vocab = {token: i for i, token in enumerate(special)}
    for byte, character in byte_characters().items():
        vocab[character] = 3 + byte
    added = [{"id": i, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, token in enumerate(special)]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (directory / "chat_template.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    return directory
