#!/usr/bin/env python3
"""Writes the seed corpora of src/io's fuzz targets: python3 tools/fuzz/io_corpus.py src/io/corpus

One small file a rule of the formats, good and bad, so that the fuzzer starts behind every check.
"""

import json
import pathlib
import struct
import sys


def st(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def t(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "empty-object": st({}),
    "padded": st(b"{}      "),
    "scalar": st({"s": t("F32", [], 0, 4)}, b"\0\0\x80?"),
    "two": st({"a": t("U8", [2, 2], 0, 4), "b": t("BF16", [3], 4, 10)}, bytes(10)),
    "unordered": st({"b": t("U8", [2], 2, 4), "z": t("U8", [0], 2, 2), "a": t("U8", [2], 0, 2)}, b"abcd"),
    "metadata": st({"__metadata__": {"format": "pt"}, "a": t("I8", [1], 0, 1)}, b"x"),
    "nvfp4": st(
        {"w": t("F4", [2, 16], 0, 16), "s": t("F8_E4M3", [2, 1], 16, 18), "e": t("F8_E8M0", [2], 18, 20),
         "g": t("F32", [1], 20, 24)}, bytes(24)),
    "wide": st({"d": t("F64", [1], 0, 8), "i": t("I64", [1], 8, 16), "c": t("F16", [2], 16, 20)}, bytes(20)),
    "zero-size": st({"a": t("F32", [0, 7], 0, 0)}),
    "escaped-name": st({"a\n\u0000\u001b": t("U8", [1], 0, 1)}, b"x"),
    "short": b"\x01\x02\x03",
    "all-ones": b"\xff" * 8 + b"{}",
    "longer-than-file": struct.pack("<Q", 100) + b"{}",
    "not-utf8": st(b'{"\x80":1}'),
    "bom": st(b"\xef\xbb\xbf{}"),
    "array": st(b"[]"),
    "garbage-behind": st(b"{} x"),
    "deep": st(b'{"a":' + b"[" * 40 + b"]" * 40 + b"}"),
    "duplicate": st(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                    b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xy"),
    "duplicate-field": st(b'{"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}', b"x"),
    "overlap": st({"a": t("U8", [4], 0, 4), "b": t("U8", [4], 3, 7)}, bytes(7)),
    "hole": st({"a": t("U8", [4], 0, 4), "b": t("U8", [4], 5, 9)}, bytes(9)),
    "trailing": st({"a": t("U8", [4], 0, 4)}, bytes(20)),
    "begin-after-end": st({"a": t("U8", [4], 4, 0)}, bytes(4)),
    "fraction": st(b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0.5,4]}}', bytes(4)),
    "overflow": st({"a": t("U8", [2**32, 2**32, 2], 0, 4)}, bytes(4)),
    "huge-dimension": st({"a": t("U8", [0, 2**63], 0, 0)}),
    "size-differs": st({"a": t("BF16", [2, 3], 0, 4)}, bytes(4)),
    "rank": st({"a": t("U8", [1] * 9, 0, 1)}, b"x"),
    "unknown-dtype": st({"a": t("F128", [1], 0, 16)}, bytes(16)),
    "odd-f4": st({"a": t("F4", [3], 0, 2)}, bytes(2)),
    "truncated": st({"a": t("U8", [8], 0, 8)}, bytes(4)),
    "metadata-number": st({"__metadata__": {"k": 1}}),
    "zip": b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(40),
    "pickle": b"\x80\x02}q\x01." + bytes(20),
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
}

JSON = {
    "kinds": b'{"n":null,"t":true,"f":false,"i":-3,"u":18446744073709551615,"d":2.5e-1,"s":"x","a":[1,{}]}',
    "big-integer": b'{"model_max_length":1000000000000000019884624838656,"a":[-9223372036854775809]}',
    "escapes": rb'["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"]',
    "half-surrogate": rb'["\ud800\u0041"]',
    "utf8": '["é😀\u2028"]'.encode(),
    "overlong": b'["\xc0\xaf"]',
    "nan": b"[NaN, Infinity, -Infinity]",
    "comment": b"{ // why\n}",
    "trailing-comma": b"[1,]",
    "duplicate": b'{"a":1,"\\u0061":2}',
    "many-keys": json.dumps({f"k{i}": i for i in range(40)}).encode(),
    "deep-array": b"[" * 33 + b"]" * 33,
    "deep-object": b'{"a":' * 33 + b"1" + b"}" * 33,
    "numbers": b"[0,-0,0.0,1e5,1E-5,-1.5e+3,1e308,1e-400]",
    "too-large": b"[1e400]",
    "leading-zero": b"[01]",
    "control": b'["a\tb"]',
    "garbage": b"{} x",
    "cut-string": b'["abc',
    "cut-object": b'{"a":',
    "bom": b"\xef\xbb\xbf{}",
    "space": b" \r\n\t[ ] \n",
    "word": b"tru",
    "config": b'{"architectures":["LlamaForCausalLM"],"rope_scaling":{"factor":8.0},"torch_dtype":"bfloat16"}',
}


def main():
    root = pathlib.Path(sys.argv[1])
    for folder, files in (("safetensors", SAFETENSORS), ("json", JSON)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (root / folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
