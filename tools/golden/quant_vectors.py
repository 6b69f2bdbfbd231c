#!/usr/bin/env python3
"""Expected bytes for the tests of src/quant, from nvfp4_snr.py (NVFP4, MXFP4) and from numpy and ml_dtypes (formats, FP8).

    python3 -m venv /tmp/v && /tmp/v/bin/pip install numpy==2.4.6 ml_dtypes==0.6.0
    /tmp/v/bin/python tools/golden/quant_vectors.py tests/golden/quant

Deterministic. Numbers are float32 bit patterns in hexadecimal, bytes hexadecimal in order. Files:
  formats.txt     "decode NAME" and all values in code order; "encode NAME" and, for BF16 bit patterns 0 .. ffff without
                  NaN, "pattern:code" wherever the code changes; "fp16" and pairs "float32:fp16"
  nvfp4_blocks.txt   a line a block: G, g, 16 inputs, then scale and 8 code bytes of A, B, T, C, D, E, four-over-six ("-": undefined)
  nvfp4_values.txt   a line a value: code, scale, global scale, f32(q * f32(S * g)), f32(q * f32(S / G))
  mxfp4_blocks.txt   a line a block: 32 inputs, then scale and 16 code bytes of round-up, modelopt, compressed-tensors, truncate
  fp8.txt            "case rows cols block_n block_k", scales, codes, dequantized values of rows 0 and rows-1; inputs by fp8_input

Blocks sit where roundings decide: at the midpoints of E4M3 (for the largest element) and at the thresholds of E2M1 (for
the others), moved by a few units in the last place, so that any other order of operations changes a byte somewhere.
"""
import math
import pathlib
import random
import sys

import ml_dtypes
import numpy as np

from nvfp4_snr import (E2M1, E4M3_POS, INF, NAN, bf16, bits_f32, divf, e2m1_dec, e2m1_enc, e4m3_dec, e8m0_enc_up, f32,
                       f32_bits, mulf, pack, q_46, q_ct, q_modelopt, q_te, q_torchao, q_trtllm, q_vllm)

THRESHOLDS = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]


def bits(x):
    return "%08x" % f32_bits(x)


def moved(x, ulps):
    """x > 0 by so many units in the last place."""
    return bits_f32(max(0, min(0x7F7FFFFF, f32_bits(f32(x)) + ulps)))


# ------------------------------------------------------------------ formats


def formats():
    out = []
    for name, dtype, n in (("e4m3", ml_dtypes.float8_e4m3fn, 256), ("e5m2", ml_dtypes.float8_e5m2, 256),
                           ("ue8m0", ml_dtypes.float8_e8m0fnu, 256), ("e2m1", ml_dtypes.float4_e2m1fn, 16)):
        values = np.arange(n, dtype=np.uint8).view(dtype).astype(np.float32)
        out.append("decode %s %s" % (name, " ".join("nan" if np.isnan(v) else "%08x" % v.view(np.uint32) for v in values)))
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    out.append("decode fp16 " + " ".join("nan" if np.isnan(v) else "%08x" % v.view(np.uint32) for v in halves[::37]))
    every = np.arange(65536, dtype=np.uint32)
    x = (every << 16).view(np.float32)
    finite = np.clip(x, -448, 448)  # the saturating converter; NaN stays
    with np.errstate(all="ignore"):
        tables = {"e4m3": finite.astype(ml_dtypes.float8_e4m3fn), "e4m3_nonsaturating": x.astype(ml_dtypes.float8_e4m3fn),
                  "e2m1": np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn)}
        for name, codes in tables.items():
            codes, row, last = codes.view(np.uint8), [], None
            for u in every[~np.isnan(x)]:
                if codes[u] != last:
                    last = codes[u]
                    row.append("%04x:%02x" % (u, last))
            out.append("encode %s %s" % (name, " ".join(row)))
        r = np.random.default_rng(1)
        h = r.integers(0, 0x7C00, 1500, dtype=np.uint16)
        lo, hi = h.view(np.float16).astype(np.float64), (h + 1).astype(np.uint16).view(np.float16).astype(np.float64)
        hi[np.isinf(hi)] = 65536.0
        mid = ((lo + hi) / 2).astype(np.float32)
        u = mid.view(np.uint32) + r.integers(-1, 2, 1500).astype(np.uint32)
        u = np.concatenate([u, u | 0x80000000, np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x477FEFFF, 0x477FF000, 0x33000000,
                                                         0x33000001, 0x387FFFFF, 0x7F7FFFFF, 1], dtype=np.uint32)]).astype(np.uint32)
        half = u.view(np.float32).astype(np.float16).view(np.uint16)
        out.append("fp16 " + " ".join("%08x:%04x" % p for p in zip(u, half)))
    return out


# ------------------------------------------------------------------ NVFP4

PROFILES = [(q_vllm, "G"), (q_trtllm, "G"), (q_te, "G"), (q_ct, "G"), (q_modelopt, "g"), (q_torchao, "g"), (q_46, "G")]


def near_ties(r, G, byte):
    """The largest element within a few ulps of the point between scales byte and byte + 1, the others of a code threshold."""
    S, up = E4M3_POS[byte], E4M3_POS[byte + 1]
    top = moved((S + up) / 2 * 6 / G, r.randint(-3, 3))
    block = []
    for _ in range(15):
        limit = 7 if r.random() < 0.9 else 3
        x = moved(r.choice(THRESHOLDS[:limit]) * r.choice((S, up)) / G, r.randint(-2, 2))
        block.append(min(x, top) * r.choice((1, -1)))
    block.append(top * r.choice((1, -1)))
    r.shuffle(block)
    return block


def nvfp4_inputs():
    r = random.Random(20)
    zeros = [0.0] * 16
    for _ in range(60):  # ordinary weights and activations
        sigma = 2.0 ** r.uniform(-8, 4)
        yield f32(2688 / (sigma * r.uniform(2, 6))), [bf16(r.gauss(0, sigma)) for _ in range(16)]
    for i in range(520):  # decided by the last bit
        G = [f32(2.0 ** r.uniform(-6, 18)), 336.0, 1344.0, 100.0, f32(2688 / r.uniform(0.01, 50)), 1.0][i % 6]
        yield G, near_ties(r, G, r.randint(8, 0x7D) if i % 8 else r.randint(0, 8))
    for i in range(60):  # overflow of the scale, 464 and 448
        G = f32(2.0 ** r.uniform(-4, 12))
        yield G, [moved(r.choice((464, 464, 448, 470, 900)) * 6 / G, r.randint(-3, 3)) * r.choice((1, -1))] + \
            [f32(r.gauss(0, 400 / G)) for _ in range(15)]
    for i in range(60):  # underflow: 2^-10, 2^-9 and torchao's 2^-6
        G = f32(2.0 ** r.uniform(-4, 12))
        top = moved(2.0 ** r.choice((-10, -10, -9, -6, -6, -12)) * 6 / G, r.randint(-3, 3))
        yield G, [top] + [f32(r.uniform(-1, 1) * top) if i % 2 else r.choice((0.0, -0.0, f32(top / 2))) for _ in range(15)]
    for G in (2.0 ** 125, 2.0 ** 126, moved(2.0 ** 126, 1), 2.0 ** 127, 2.0 ** -126, 2.0 ** -127, 2.0 ** -140, 1e38, 3e-39, 1e30):
        for scale in (1.0, 300.0, 1e-3):
            yield f32(G), [f32(r.gauss(0, 1) * scale / G) for _ in range(16)]
            yield f32(G), [f32(r.gauss(0, scale)) for _ in range(16)]
    for G in (1.0, 3977.6, 0.0, INF, NAN, -1.0, -300.0):
        yield f32(G), zeros
        yield f32(G), [-0.0] * 16
        for special in ([INF], [-INF], [NAN], [INF, -INF, NAN], [NAN] * 16, [1e-45], [3e38], [-1e-45] + [1e-45] * 15, [-1e-40]):
            yield f32(G), (special + [f32(r.gauss(0, 1)) for _ in range(16)])[:16]
            yield f32(G), (special + zeros)[:16]
    for _ in range(60):  # signs of what rounds to zero
        G = f32(2.0 ** r.uniform(-4, 8))
        yield G, [f32(r.choice((1, -1)) * 10.0 ** r.uniform(-46, -1)) for _ in range(12)] + [0.0, -0.0, 6.0, -6.0]
    for _ in range(80):  # four-over-six: equal errors, and errors apart by little
        v = [r.choice((0.0, 1.5, 3.0, -3.0, 0.75, -1.5, 6.0, -6.0, 2.0, 4.0, 5.0)) for _ in range(15)] + [6.0]
        if r.random() < 0.5:
            v = [x if abs(x) in (0, 1.5, 3, 6) else 0.0 for x in v]
        k = 2.0 ** r.randint(-3, 3)
        yield r.choice((1.0, 2.0, 16.0, 37.0)), [f32(x * k) for x in v]
    for _ in range(100):  # four-over-six: the largest element at a midpoint of the scale that maps it to 4, the others on that grid
        G, byte = f32(2.0 ** r.uniform(-4, 12)), r.randint(8, 0x70)
        S, up = E4M3_POS[byte], E4M3_POS[byte + 1]
        top = moved((S + up) / 2 * 4 / G, r.randint(-3, 3))
        yield G, [f32(r.choice((0, 0.5, 1, 1.5, 2, 3)) * (S + up) / 2 / G) * r.choice((1, -1)) for _ in range(15)] + [top]


def nvfp4_blocks():
    out = []
    for G, v in nvfp4_inputs():
        g = divf(1.0, G)
        row = [bits(G), bits(g), "".join(bits(x) for x in v)]
        for quantize, takes in PROFILES:
            scale, codes = quantize(v, G if takes == "G" else g)
            codes = pack(codes)
            row.append("%02x%s" % (scale, "-" if None in codes else "".join("%02x" % c for c in codes)))
        out.append(" ".join(row))
    return out


def nvfp4_values():
    """Mostly values for which another order of the two products gives another last bit."""
    r, out = random.Random(21), []
    while len(out) < 400:
        code, byte, g = r.randrange(16), r.randrange(0, 0x7F), f32(2.0 ** r.uniform(-30, 2))
        if len(out) % 16 == 0:
            g = f32(2.0 ** r.uniform(-140, -110))
        q, S = e2m1_dec(code), e4m3_dec(byte)
        by_product, by_quotient = mulf(q, mulf(S, g)), mulf(q, divf(S, g))
        telling = mulf(mulf(q, S), g) != by_product and divf(mulf(q, S), g) != by_quotient
        if telling or r.random() < 0.005:
            out.append("%x %02x %s %s %s" % (code, byte, bits(g), bits(by_product), bits(by_quotient)))
    return out


# ------------------------------------------------------------------ MXFP4


def floor_log2(x):
    return math.frexp(x)[1] - 1


def mx_up(amax):
    return e8m0_enc_up(divf(amax, 6.0))


def mx_ct(amax):
    """amax rounded up to the next power of two from mantissa 1.75 on, then floor(log2) - 2."""
    if amax != amax or amax == INF:
        return 255 if amax != amax else 253
    if amax == 0:
        return 0
    e = floor_log2(amax)
    if amax >= 1.75 * 2.0 ** e:
        e += 1
    return max(0, min(254, e - 2 + 127))


def mx_truncate(amax):
    t = divf(amax, 6.0)
    if t != t:
        return 255
    if t == INF:
        return 254
    return 0 if t <= 2.0 ** -127 else max(0, floor_log2(t) + 127)


def mx_modelopt_code(t):
    return sum(abs(t) > b for b in THRESHOLDS) | (0 if t > 0 else 8)


def mxfp4_blocks():
    r, out = random.Random(22), []
    for i in range(240):
        e = r.randint(-20, 20) if i % 4 else r.choice((-126, -125, -100, 100, 125))
        top = r.choice((6.0, 7.0, 4.0, 3.5, 3.4999998, 6.0000005, 7.9999995, 5.999999, r.uniform(4, 8))) * 2.0 ** e
        v = [r.choice((r.choice(THRESHOLDS + E2M1), r.uniform(0, 6))) * 2.0 ** e * r.choice((1, 1, 0.5, 2)) for _ in range(31)]
        v = [f32(min(x, top) * r.choice((1, -1))) for x in v] + [f32(top)]
        if i == 5:
            v = [0.0] * 32
        if i == 6:
            v = [NAN] + v[1:]
        row = ["".join(bits(x) for x in v)]
        amax = NAN if any(x != x for x in v) else max(abs(x) for x in v)
        for scale_of, code_of in ((mx_up, e2m1_enc), (mx_up, mx_modelopt_code), (mx_ct, e2m1_enc), (mx_truncate, e2m1_enc)):
            s = scale_of(amax)
            d = NAN if s == 255 else 2.0 ** (s - 127)
            row.append("%02x%s" % (s, "".join("%02x" % c for c in pack([code_of(divf(x, d)) for x in v]))))
        out.append(" ".join(row))
    return out


# ------------------------------------------------------------------ FP8


def fp8_input(rows, cols):
    """Values anybody can make again: the top 24 bits of i * 2654435761 mod 2^32 as a fraction, less a half, every
    fifth times 8, column 3 of every row zero."""
    i = np.arange(rows * cols, dtype=np.uint64)
    x = ((((i * 2654435761) % 2 ** 32) >> 8).astype(np.float32) * np.float32(2.0 ** -24) - np.float32(0.5))
    x[::5] *= np.float32(8)
    x = x.reshape(rows, cols)
    x[:, 3] = 0
    return x


def fp8():
    out = []
    for rows, cols, bn, bk in ((5, 300, 5, 300), (5, 300, 1, 300), (5, 300, 3, 128), (130, 144, 128, 128)):
        x = fp8_input(rows, cols)
        n, k = -(-rows // bn), -(-cols // bk)
        s = np.array([[np.abs(x[i * bn:(i + 1) * bn, j * bk:(j + 1) * bk]).max() / np.float32(448) for j in range(k)] for i in range(n)],
                     dtype=np.float32)
        wide = np.repeat(np.repeat(s, bn, 0), bk, 1)[:rows, :cols]
        codes = np.clip(x / wide, -448, 448).astype(ml_dtypes.float8_e4m3fn)
        back = codes.astype(np.float32) * wide
        out.append("case %d %d %d %d" % (rows, cols, bn, bk))
        out.append("".join("%08x" % v for v in s.view(np.uint32).ravel()))
        out.append(codes.view(np.uint8).tobytes().hex())
        out.append("".join("%08x" % v for v in back[[0, rows - 1]].view(np.uint32).ravel()))
    return out


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, make in (("formats", formats), ("nvfp4_blocks", nvfp4_blocks), ("nvfp4_values", nvfp4_values),
                       ("mxfp4_blocks", mxfp4_blocks), ("fp8", fp8)):
        (out / (name + ".txt")).write_text("\n".join(make()) + "\n")


if __name__ == "__main__":
    main()
