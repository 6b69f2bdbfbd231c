"""What the oracle tests share: where things are, filling the cache of real tokenizers and templates, and asking our side.

Needs build/test (or $SEXTANT_BUILD): sextant and tokenizer_probe, or $SEXTANT_BIN and $SEXTANT_TOKENIZER_PROBE. Downloads go to
~/.cache/sextant (or $SEXTANT_CACHE) once, about 220 MB.
"""
import fcntl
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SEXTANT_BUILD", ROOT / "build" / "test"))
SEXTANT = pathlib.Path(os.environ.get("SEXTANT_BIN", BUILD / "sextant"))
PROBE = pathlib.Path(os.environ.get("SEXTANT_TOKENIZER_PROBE", BUILD / "src" / "text" / "tokenizer_probe"))
GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN") or ROOT / "tests" / "golden")
CACHE = pathlib.Path(os.environ.get("SEXTANT_CACHE", pathlib.Path.home() / ".cache" / "sextant"))

sys.path += [str(ROOT / "tools"), str(ROOT / "tools" / "golden")]  # the fetching tools, and the patterns in them


def fetch(*names):
    """The directory in which tools/golden/tokenizers_fetch.py leaves these; processes take turns."""
    out = CACHE / "tokenizers"
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([sys.executable, str(ROOT / "tools" / "golden" / "tokenizers_fetch.py"), "--cache", str(out), "--missing", "--only", *names],
                       check=True, stdout=subprocess.DEVNULL)
    return out


def ask(command, questions):
    """One line of JSON for each question, which is an object, too."""
    lines = "".join(json.dumps(q, ensure_ascii=False) + "\n" for q in questions)
    run = subprocess.run([str(c) for c in command], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = run.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def check_ids(texts, lines, expected):
    """Each line is {"ids": [...]} with the ids expected. Millions of them: only what is spelled otherwise is parsed."""
    for text, line, ids in zip(texts, lines, expected, strict=True):
        if line != b'{"ids":%b}' % str(ids).replace(" ", "").encode():
            assert json.loads(line) == {"ids": ids}, repr(text)
