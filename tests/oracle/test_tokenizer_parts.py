"""Every normalizer, pre-tokenizer, decoder and small model against the Python package, part by part and over every code point.

A BPE model of the 256 byte tokens alone shows a normalizer's output byte for byte; with a continuing_subword_prefix it shows where
words begin, too. So ids that are equal mean text and boundaries that are equal. The package encodes the texts of planes 0 and 1 as
a whole; of the rest, which is mostly unassigned, it says what its normalizer or pre-tokenizer gives, and the ids follow from that.
"""
import base64
import functools
import json
import random
import struct

import pytest
from tokenizers import Tokenizer

from oracle import PROBE, ask, check_ids
from tokenizer_texts import ATOMS, FAR, NEAR, code_points, is_dense, mixes, random_bytes, scripts

from tokenizers_fetch import LLAMA3, LLAMA4, QWEN2, QWEN35

TEKKEN = LLAMA4.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def seq(kind, *parts):
    return {"type": "Sequence", {"n": "normalizers", "p": "pretokenizers", "d": "decoders"}[kind]: list(parts)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def charsmap():
    """A SentencePiece character map made by hand: A becomes a, U+00AA becomes xy."""
    keys, blob = {b"A": b"a", b"\xc2\xaa": b"xy"}, b"\0"
    units = [0] * 2048
    offsets = {}
    for k, v in keys.items():
        offsets[k] = len(blob)
        blob += v + b"\0"
    place = 256  # each node's children lie in a block of their own: node xor byte
    nodes, units[0] = {b"": 256}, 256 << 10
    for key in sorted(keys):
        for i in range(len(key)):
            prefix, path = key[:i], key[:i + 1]
            at = nodes[prefix] ^ key[i]
            if path not in nodes:
                place += 256
                nodes[path] = place
                units[at] = key[i] | ((nodes[path] ^ at) << 10)
            if path in keys:
                units[at] |= 0x100
                units[nodes[path]] = 0x80000000 | offsets[path]
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + blob).decode()


NORMALIZERS = {
    **{k: {"type": k} for k in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel")},
    "accents": seq("n", {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}),
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "strip_right": {"type": "Strip", "strip_left": False, "strip_right": True},
    "prepend": seq("n", {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}),
    "replace": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581\u2581"},
    "empty": seq("n"),
    "bert": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "bert_cased": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False},
    "precompiled": {"type": "Precompiled", "precompiled_charsmap": charsmap()},
}
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PRETOKENIZERS = {
    "gpt2": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "gpt2_prefix": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "llama3": split(LLAMA3), "qwen2": split(QWEN2), "qwen35": split(QWEN35), "llama4": split(LLAMA4), "tekken": split(TEKKEN),
    "deepseek": seq("p", split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK)), "deepseek_alone": split(DEEPSEEK),
    "deepseek_written": split(DEEPSEEK.replace(r"\r\n", "\r\n")),
    **{f"letters_{b}_{i}": split(LLAMA3 if i else r"\p{N}{1,3}", b, i) for b in BEHAVIORS for i in (False, True)},
    **{f"string_{b}": split("a", b, False, "String") for b in BEHAVIORS},
    "pcre2": split("[A-Za-z]+|[0-9]{3}"), "each": split(""),
    "digits": {"type": "Digits", "individual_digits": True}, "digit_runs": {"type": "Digits", "individual_digits": False},
    **{f"punctuation_{b}": {"type": "Punctuation", "behavior": b} for b in BEHAVIORS},
    **{k: {"type": k} for k in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")},
    "delimiter": {"type": "CharDelimiterSplit", "delimiter": "a"},
    **{f"metaspace_{s}_{c}": metaspace(s, c) for s in ("always", "first", "never") for c in (False, True)},
    "falcon": seq("p", {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")),
}


def file(tmp_path, **parts):
    model = {"type": "BPE", "byte_fallback": True, "unk_token": "<0x00>", "vocab": {f"<0x{b:02X}>": b for b in range(256)}, "merges": []}
    model.update(parts.pop("model", {}))
    path = tmp_path / "tokenizer.json"
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
             "post_processor": None, "decoder": None, "model": model}
    path.write_text(json.dumps({**whole, **parts}))
    return path


@functools.lru_cache
def texts():
    rng = random.Random(3)
    return code_points(NEAR) + scripts(rng, 500) + random_bytes(rng, 500) + mixes(rng, 2000, ATOMS) + ["", " ", "  a", "a  ", " a b "]


@functools.lru_cache
def far_texts():
    return code_points(FAR)


def our_ids(path, strings):
    return ask([PROBE, path], [{"text": t, "short": 1} for t in strings])


def same_ids(path, strings):
    expected = [e.ids for e in Tokenizer.from_file(str(path)).encode_batch_fast(strings)]
    check_ids(strings, our_ids(path, strings), expected)


WORDS = {"continuing_subword_prefix": "##"}  # before every character but the first of a word


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizer(tmp_path, name):
    same_ids(file(tmp_path, normalizer=NORMALIZERS[name]), texts())


@pytest.mark.parametrize("name", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel", "strip", "bert", "precompiled"])
def test_normalizer_on_all_other_code_points(tmp_path, name):
    path = file(tmp_path, normalizer=NORMALIZERS[name])
    normalizer = Tokenizer.from_file(str(path)).normalizer
    check_ids(far_texts(), our_ids(path, far_texts()), [list(normalizer.normalize_str(t).encode()) for t in far_texts()])


CLASSES = ["gpt2", "llama3", "qwen2", "qwen35", "llama4", "tekken", "deepseek", "digits", "punctuation_Isolated", "Whitespace", "WhitespaceSplit",
           "BertPreTokenizer"]  # that ask for a class of each character, every class in one of them


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_pretokenizer(tmp_path, name):
    same_ids(file(tmp_path, pre_tokenizer=PRETOKENIZERS[name], model=WORDS), texts() if name in CLASSES else texts()[::3])


@pytest.mark.parametrize("name", CLASSES)
def test_pretokenizer_on_all_other_code_points(tmp_path, name):
    path = file(tmp_path, pre_tokenizer=PRETOKENIZERS[name], model=WORDS)
    split = Tokenizer.from_file(str(path)).pre_tokenizer.pre_tokenize_str
    check_ids(far_texts(), our_ids(path, far_texts()), [list("".join("##".join(word) for word, _ in split(t)).encode()) for t in far_texts()])


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_metaspace_behind_normalizers_and_added_tokens(tmp_path, scheme):
    added = [{"id": 256, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
    atoms = ["<s>", " ", "a", "b ", "\u2581", "\u0301"]
    strings = mixes(random.Random(4), 2000, atoms)
    for name in ("strip", "StripAccents", "prepend", "NFC", "replace"):
        same_ids(file(tmp_path, normalizer=NORMALIZERS[name], pre_tokenizer=metaspace(scheme, True), added_tokens=added,
                      model=WORDS), strings)


@pytest.mark.parametrize("flags", range(16))
def test_flags_of_added_tokens_beside_characters(tmp_path, flags):
    names = ["single_word", "lstrip", "rstrip", "normalized"]
    token = {"id": 256, "content": "<s>", "special": False, **{n: bool(flags >> i & 1) for i, n in enumerate(names)}}
    word = {**token, "id": 257, "content": "zz"}
    path = file(tmp_path, added_tokens=[token, word], normalizer={"type": "NFKC"})
    points = [c for c in NEAR if c % (3 if is_dense(c) else 61) == 0]
    strings = ["".join(f"{chr(c)}<s>.zz{chr(c)} " for c in points[i:i + 200]) for i in range(0, len(points), 200)]
    same_ids(path, strings + mixes(random.Random(5), 500, ["<s>", "zz", " ", "\n", "a", "\u00e9", "<s", "z"]))


def pieces():
    rng = random.Random(6)
    words = sorted({"".join(rng.choice("abcde\u00e9\u4e2d") for _ in range(rng.randint(1, 4))) for _ in range(200)})
    return rng, words


@pytest.mark.parametrize("fallback", [False, True])
def test_unigram(tmp_path, fallback):
    rng, words = pieces()
    vocab = [["<unk>", 0.0]] + [[f"<0x{b:02X}>", -20.0] for b in range(256 if fallback else 100)] + [[w, -rng.randint(1, 40) / 4] for w in words]
    model = {"type": "Unigram", "unk_id": 0, "byte_fallback": fallback, "vocab": vocab}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": model, "pre_tokenizer": metaspace("always", True)}))
    same_ids(path, mixes(rng, 3000, words + ["x", " ", "\u0416", "\U0001f600"]))


def test_wordpiece_and_wordlevel(tmp_path):
    rng, words = pieces()
    vocab = {w: i for i, w in enumerate(["[UNK]"] + words + ["##" + w for w in words[::2]])}
    path = tmp_path / "tokenizer.json"
    strings = mixes(rng, 3000, words + [" ", "x", ".", "a" * 120])
    for model in ({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
                  {"type": "WordLevel", "unk_token": "[UNK]"}):
        path.write_text(json.dumps({"model": {**model, "vocab": vocab}, "pre_tokenizer": {"type": "BertPreTokenizer"}}))
        same_ids(path, strings)


@pytest.mark.parametrize("suffix", [None, "</w>"])
@pytest.mark.parametrize("prefix", [None, "##"])
def test_bpe_with_prefix_and_suffix(tmp_path, prefix, suffix):
    rng = random.Random(7)
    p, s = prefix or "", suffix or ""
    vocab = ["<unk>"] + [a + c + b for c in "abc" for a in {"", p} for b in {"", s}]
    merges = []
    for _ in range(40):
        left, right = rng.choice(vocab[1:]), rng.choice(vocab[1:])
        joined = left + right[len(p):] if right.startswith(p) else None
        if joined and (not s or s not in left) and [left, right] not in merges:
            merges.append([left, right])
            vocab += [joined] if joined not in vocab else []
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "continuing_subword_prefix": prefix, "end_of_word_suffix": suffix,
             "vocab": {v: i for i, v in enumerate(vocab)}, "merges": merges}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    same_ids(path, mixes(rng, 3000, ["a", "b", "c", "ab", "bca", "x", "yy", " "]))


DECODERS = {
    "none": None, "bytelevel": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "fallback": {"type": "ByteFallback"}, "fuse": {"type": "Fuse"},
    "llama": seq("d", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                 {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
    "regex": {"type": "Replace", "pattern": {"Regex": "[a-c]+"}, "content": "*"},
    "metaspace": metaspace("always", True), "metaspace_first": metaspace("first", True), "metaspace_never": metaspace("never", True),
    "wordpiece": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "wordpiece_raw": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    "bpe": {"type": "BPEDecoder", "suffix": "</w>"}, "strip_start": {"type": "Strip", "content": "a", "start": 2, "stop": 0}, "strip_stop": {"type": "Strip", "content": "b", "start": 0, "stop": 1},
}


@pytest.mark.parametrize("name", DECODERS)
def test_decoder(tmp_path, name):
    words = ["a", "aab", "##b", "c</w>", "\u2581", "\u2581\u2581d", " ", ".", "'s", "n't", "do not", "\u0120", "\u00e9", "\u0142", "\u4e2d", "<0xzz>", "<0x+1>", "<0x6>"]
    path = file(tmp_path, decoder=DECODERS[name],
                model={"vocab": {**{f"<0x{b:02X}>": b for b in range(256)}, **{w: 256 + i for i, w in enumerate(words)}}})
    tokenizer = Tokenizer.from_file(str(path))
    rng = random.Random(8)
    lists = [[rng.randrange(256 + len(words)) if rng.random() < 0.4 else 256 + rng.randrange(len(words)) for _ in range(rng.randint(0, 8))]
             for _ in range(2000)]
    for ids, answer in zip(lists, ask([PROBE, path], [{"ids": ids} for ids in lists]), strict=True):
        assert json.loads(answer)["text"] == tokenizer.decode(ids), ids
