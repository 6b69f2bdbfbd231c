"""The tokenizer against the Python package `tokenizers`, over at least 20,000 texts for every tokenizer.json that
tools/golden/tokenizers_fetch.py fetches or converts and for those of tests/golden: ids, ids with special tokens, decoding with and
without special tokens, and what a stream gives token by token. `sextant tokenize --jsonl` must say the same as the library.

    pytest tests/oracle/test_tokenizers.py

Needs build/test (or $SEXTANT_BUILD): tokenizer_probe and sextant; the packages tokenizers==0.23.3 and, for the vocabularies of
llama.cpp, gguf. Downloads go to ~/.cache/sextant/tokenizers once (about 150 MB); without a network the fetched ones fail.
"""
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tokenizer_texts import texts_for  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SEXTANT_BUILD", ROOT / "build" / "test"))
SEXTANT = pathlib.Path(os.environ.get("SEXTANT_BIN", BUILD / "sextant"))
PROBE = pathlib.Path(os.environ.get("SEXTANT_TOKENIZER_PROBE", BUILD / "src" / "text" / "tokenizer_probe"))
GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN") or ROOT / "tests" / "golden") / "tokenizers"
CACHE = pathlib.Path(os.environ.get("SEXTANT_CACHE", pathlib.Path.home() / ".cache" / "sextant")) / "tokenizers"
N_TEXTS = int(os.environ.get("SEXTANT_ORACLE_TEXTS", "20000"))
STREAM_EVERY = 4  # the package's stream is slow from Python: a quarter of the lists, all through the text kinds

OURS = ["gpt2", "llama3", "qwen2", "deepseek-v3", "llama2", "llama2-metaspace", "gemma", "added-flags"]
FETCHED = ["deepseek-v4", "deepseek-v3", "anthropic", "vocab-gpt-2", "vocab-mpt", "vocab-starcoder", "vocab-refact", "vocab-falcon",
           "vocab-command-r", "vocab-llama-bpe", "vocab-qwen2", "vocab-qwen35", "vocab-llama-spm", "vocab-gemma-4"]


@pytest.fixture(scope="session")
def fetched():
    """The cache directory, filled."""
    script = ROOT / "tools" / "golden" / "tokenizers_fetch.py"
    subprocess.run([sys.executable, str(script), "--cache", str(CACHE), "--missing", "--only", *FETCHED], check=True)
    return CACHE


def file_in(directory):
    return next(p for p in sorted(directory.glob("*.json")) if p.name.endswith("tokenizer.json"))


def ask(command, questions):
    """One answer a question, both a JSON object a line."""
    lines = "".join(json.dumps(q) + "\n" for q in questions)
    run = subprocess.run([str(c) for c in command], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(questions)
    return answers


def streamed(tokenizer, ids):
    """What DecodeStream gives for each id; None where it gives up because the text before changes."""
    stream, out = DecodeStream(skip_special_tokens=False), []
    for i in ids:
        try:
            out.append(stream.step(tokenizer, i) or "")
        except Exception as error:  # noqa: BLE001  the package raises its base class
            assert "prefix" in str(error).lower()
            return None
    return out


def check(path):
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = texts_for(tokenizer, N_TEXTS)
    answers = ask([PROBE, path], [{"text": t} for t in texts])
    plain = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    special = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=True)]
    tokenizer.encode_special_tokens = True
    as_text = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    tokenizer.encode_special_tokens = False
    for text, answer, a, b, c in zip(texts, answers, plain, special, as_text):
        assert answer == {"ids": a, "special": b, "plain": c}, repr(text)

    rng = random.Random(2)
    size = tokenizer.get_vocab_size()
    lists = [ids for ids in plain if len(ids) <= 64] + [ids[:48] for ids in plain if len(ids) > 64]
    lists += [[rng.randrange(size) for _ in range(rng.randint(1, 16))] for _ in range(2000)]
    decoded = tokenizer.decode_batch(lists, skip_special_tokens=False)
    skipped = tokenizer.decode_batch(lists, skip_special_tokens=True)
    compared = 0
    questions = [{"ids": ids} for ids in lists]
    for i, (ids, answer, text, skip) in enumerate(zip(lists, ask([PROBE, path], questions), decoded, skipped)):
        assert answer["text"] == text, ids
        assert answer["skip"] == skip, ids
        if i % STREAM_EVERY != 0:
            continue
        want = streamed(tokenizer, ids)
        if want is not None:
            compared += 1
            assert answer["stream"][:-1] == want, ids
    assert compared > len(lists) // STREAM_EVERY // 2


@pytest.mark.parametrize("name", OURS)
def test_own_tokenizer(name):
    check(GOLDEN / name / "tokenizer.json")


@pytest.mark.parametrize("name", FETCHED)
def test_fetched_tokenizer(fetched, name):
    check(file_in(fetched / name))


@pytest.mark.parametrize("name", ["llama3", "llama2"])
def test_command_line_says_the_same(name):
    path = GOLDEN / name / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    texts = texts_for(tokenizer, N_TEXTS)
    for flags, special in (([], False), (["--special"], True)):
        answers = ask([SEXTANT, "tokenize", path, "--jsonl", *flags], [{"text": t} for t in texts])
        for text, answer, encoding in zip(texts, answers, tokenizer.encode_batch_fast(texts, add_special_tokens=special)):
            assert answer == {"ids": encoding.ids}, repr(text)
    lists = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    answers = ask([SEXTANT, "tokenize", path, "--jsonl"], [{"ids": ids} for ids in lists])
    for answer, text in zip(answers, tokenizer.decode_batch(lists, skip_special_tokens=False)):
        assert answer == {"text": text}
