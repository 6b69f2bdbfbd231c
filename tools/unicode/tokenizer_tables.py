"""Generates src/text/unicode_tables.cpp: the character classes and case mappings that the Python package `tokenizers` uses.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers==0.23.3
    /tmp/v/bin/python tools/unicode/tokenizer_tables.py [--check]

Everything is asked of the package itself, code point by code point, because the Unicode versions of its parts (Oniguruma, Rust's
standard library, three crates) differ from each other and from those of PCRE2 and utf8proc. utf8proc (libutf8proc.so.2) is only compared
with: what it normalizes and the package does not is marked inert, what it lowers otherwise is listed. Takes about three minutes.
--check compares with the file that is there and writes nothing.
"""
import argparse
import ctypes
import pathlib
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[2] / "src" / "text" / "unicode_tables.cpp"
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
FLAGS = ["space", "numeric", "punctuation", "word", "accent", "bert_accent", "bert_other", "inert"]
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, POINTS))


def matching(pattern):
    """Code points that Oniguruma's pattern (a run of one class) matches."""
    keep = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in keep.pre_tokenize_str(TEXT) for c in piece}


def where(test):
    return {c for c in POINTS if test(chr(c))}


class Utf8proc:
    STABLE, COMPAT, DECOMPOSE = 2, 4, 16

    class Property(ctypes.Structure):
        _fields_ = [("category", ctypes.c_int16), ("combining_class", ctypes.c_int16)]

    def __init__(self):
        self.lib = ctypes.CDLL("libutf8proc.so.2")
        self.lib.utf8proc_map.restype = ctypes.c_ssize_t
        self.lib.utf8proc_tolower.restype = ctypes.c_int32
        self.lib.utf8proc_get_property.restype = ctypes.POINTER(self.Property)
        self.libc = ctypes.CDLL(None)

    def decompose(self, text, compat):
        data, out = text.encode(), ctypes.c_void_p()
        options = self.STABLE | self.DECOMPOSE | (self.COMPAT if compat else 0)
        n = self.lib.utf8proc_map(data, ctypes.c_ssize_t(len(data)), ctypes.byref(out), options)
        result = ctypes.string_at(out, n).decode()
        self.libc.free(out)
        return result

    def combining_class(self, c):
        return self.lib.utf8proc_get_property(c).contents.combining_class

    def lower(self, c):
        return chr(self.lib.utf8proc_tolower(c))


def flags():
    digits, punct = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("isolated")
    words, accents = pre_tokenizers.Whitespace(), normalizers.StripAccents()
    bert = {k: normalizers.BertNormalizer(clean_text=k == "clean", handle_chinese_chars=False, strip_accents=k == "strip", lowercase=False)
            for k in ("clean", "strip")}
    f = {
        "space": matching(r"\s+"),
        "numeric": where(lambda c: len(digits.pre_tokenize_str("x" + c)) == 2),
        "punctuation": where(lambda c: len(punct.pre_tokenize_str("x" + c)) == 2),
        "word": where(lambda c: len(words.pre_tokenize_str("x" + c)[0][0]) == 2),
        "accent": where(lambda c: accents.normalize_str(c) == ""),
        "bert_accent": where(lambda c: bert["strip"].normalize_str(c) == ""),
        "bert_other": where(lambda c: bert["clean"].normalize_str(c) == ""),
    }
    # One white space serves all: the crates agree with Oniguruma on it.
    strip, split = normalizers.Strip(), pre_tokenizers.WhitespaceSplit()
    assert f["space"] == where(lambda c: strip.normalize_str("x" + c) == "x")
    assert f["space"] == where(lambda c: split.pre_tokenize_str("x" + c)[0][0] == "x")
    assert f["space"] == where(lambda c: words.pre_tokenize_str("x" + c) == [("x", (0, 1))])
    bert_punct = pre_tokenizers.BertPreTokenizer()
    assert f["punctuation"] == where(lambda c: len(bert_punct.pre_tokenize_str("x" + c)) == 2)
    return f


def inert(lib):
    """Code points that utf8proc decomposes or reorders and the package leaves alone; any other difference is an error."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    # A mark of each combining class that the package knows: one that moves before a mark of class 240, or after one of class 1.
    high, low = "\u0345", "\u0334"
    of_class = {}
    for c in POINTS[1:]:
        k = lib.combining_class(c)
        if k and k not in of_class and nfd.normalize_str(chr(c)) == chr(c) and (
                nfd.normalize_str(high + chr(c)) != high + chr(c) or nfd.normalize_str(chr(c) + low) != chr(c) + low):
            of_class[k] = chr(c)
    out = set()
    for c in POINTS[1:]:
        x = chr(c)
        ours = (lib.decompose(x, False), lib.decompose(x, True))
        theirs = (nfd.normalize_str(x), nfkd.normalize_str(x))
        if ours != theirs:
            assert theirs == (x, x), hex(c)
            out.add(c)
            continue
        if ours[0] != x:
            continue
        k = lib.combining_class(c)
        moves = nfd.normalize_str(high + x) != high + x or nfd.normalize_str(x + low) != x + low
        if k == 0:
            assert not moves, hex(c)
        elif not moves:
            out.add(c)
        else:
            for other, mark in of_class.items():
                assert (nfd.normalize_str(mark + x) != mark + x) == (k < other), (hex(c), other)
                assert (nfd.normalize_str(x + mark) != x + mark) == (other < k), (hex(c), other)
    return out


def runs(values):
    """[(value, length)] over 0 .. 0x10FFFF."""
    out = []
    for v in values:
        if out and out[-1][0] == v:
            out[-1][1] += 1
        else:
            out.append([v, 1])
    return out


def wrapped(items, width=98):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 1 > width:
            lines.append(line)
            line = "   "
        line += " " + item
    return "\n".join(lines + [line])


def source():
    lib = Utf8proc()
    values = [0] * 0x110000
    for i, name in enumerate(CATEGORIES):
        if i:  # Cn is 0; surrogates stay there too
            for c in matching(r"\p{%s}+" % name):
                values[c] = i
    sets = flags()
    sets["inert"] = inert(lib)
    for bit, name in enumerate(FLAGS):
        for c in sets[name]:
            values[c] |= 1 << (5 + bit)
    lower = normalizers.Lowercase()
    mapped = [(c, lower.normalize_str(chr(c))) for c in POINTS[1:]]
    exceptions = [(c, to) for c, to in mapped if to != lib.lower(c)]
    assert all(len(to) == 1 or c == 0x130 for c, to in exceptions)
    lowered = [f"{{0x{c:X}, 0x{ord(to):X}}}," for c, to in exceptions if c != 0x130]
    r = runs(values)
    return f"""// Made by tools/unicode/tokenizer_tables.py from tokenizers {tokenizers.__version__}; do not edit.
//
// Owns the character classes of the oracle's Unicode versions, as runs over all code points, and
// the lower case mappings in which it differs from utf8proc. Says nothing about how they are used
// (unicode_tables.h does). Must stay equal to the package over every code point
// (tests/oracle/test_tokenizers.py).
#include "text/unicode_tables.h"

namespace sextant {{

// clang-format off
const uint32_t kClassRuns[] = {{  // value, length, value, length ...
{wrapped([f"{v},{n}," for v, n in r])}
}};
const size_t kNClassRuns = {len(r)};

const LowerException kLowerExceptions[] = {{  // sorted; U+0130 becomes two and stands in the code
{wrapped(lowered)}
}};
const size_t kNLowerExceptions = {len(lowered)};
// clang-format on

}}  // namespace sextant
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    text = source()
    if args.check:
        same = OUT.read_text(encoding="utf-8") == text
        print("equal" if same else f"{OUT} differs")
        sys.exit(0 if same else 1)
    OUT.write_text(text, encoding="utf-8")
    print(f"{OUT}: {len(text)} bytes, {text.count(chr(10))} lines")


if __name__ == "__main__":
    main()
