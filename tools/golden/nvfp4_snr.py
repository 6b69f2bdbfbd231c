"""Reference numerics of NVFP4, bit level: formats and the block quantizers of every writer.

Plain Python 3 standard library, written from the rules in docs (number formats, the quantizers A, B, T, C, D, E and
four-over-six), independent of the C++ code; quant_vectors.py makes the expected bytes of the tests with it.

  python3 nvfp4_snr.py            exhaustive checks of the formats themselves
  python3 nvfp4_snr.py data DIR   the samples of docs/nvfp4.md 4.1, DIR/NAME.f32: 65,536 little-endian float32 each
"""
import bisect
import math
import pathlib
import random
import struct
import sys

INF = float("inf")
NAN = float("nan")

# ----------------------------------------------------------------- formats


def f32(x):
    """Round a double to float32 (nearest even), overflow to inf."""
    if x != x or x in (INF, -INF):
        return x
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(INF, x)


def f32_bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def bits_f32(u):
    return struct.unpack("<f", struct.pack("<I", u))[0]


def bf16(x):
    """float32 value -> nearest-even bfloat16 value."""
    if x != x or x in (INF, -INF):
        return x
    u = f32_bits(f32(x))
    return bits_f32(((u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000) & 0xFFFFFFFF)


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e2m1_enc(x, nan_code=7):
    """cvt.rn.satfinite semantics: nearest even, saturate, NaN -> +6, keeps -0."""
    if x != x:
        return nan_code
    s = 8 if math.copysign(1.0, x) < 0 else 0
    a = abs(x)
    if a <= 0.25:
        m = 0
    elif a < 0.75:
        m = 1
    elif a <= 1.25:
        m = 2
    elif a < 1.75:
        m = 3
    elif a <= 2.5:
        m = 4
    elif a < 3.5:
        m = 5
    elif a <= 5.0:
        m = 6
    else:
        m = 7
    return s | m


def e2m1_dec(c):
    v = E2M1[c & 7]
    return -v if c & 8 else v


def e4m3_dec(b):
    s = -1.0 if b & 0x80 else 1.0
    e, m = (b >> 3) & 15, b & 7
    if e == 15 and m == 7:
        return NAN
    if e == 0:
        return s * m * 2.0 ** -9
    return s * (1 + m / 8.0) * 2.0 ** (e - 7)


E4M3_POS = [e4m3_dec(i) for i in range(0x7F)]  # 0 .. 448, ascending


def e4m3_enc(x, sat=True):
    """Nearest even. sat=True: overflow and inf clamp to 448. sat=False: 0x7F."""
    if x != x:
        return 0x7F
    s = 0x80 if math.copysign(1.0, x) < 0 else 0
    a = abs(x)
    if a > 464.0:
        return s | (0x7E if sat else 0x7F)
    if a >= 448.0:
        return s | 0x7E
    i = bisect.bisect_left(E4M3_POS, a)
    if E4M3_POS[i] == a:
        return s | i
    lo, hi = E4M3_POS[i - 1], E4M3_POS[i]
    if a - lo < hi - a:
        c = i - 1
    elif a - lo > hi - a:
        c = i
    else:
        c = i if i % 2 == 0 else i - 1
    return s | c


def e8m0_enc_up(x):
    """UE8M0, round towards +inf, saturating; 0 and subnormals below 2^-127 -> 0."""
    if x != x:
        return 0xFF
    if x == INF:
        return 0xFE
    if x <= 2.0 ** -127:
        return 0
    m, e = math.frexp(x)  # x = m * 2^e, 0.5 <= m < 1
    k = e - 1 if m == 0.5 else e
    return max(0, min(254, k + 127))


def rcp_ftz(a):
    """rcp.approx.ftz.f32, modelled as correctly rounded with flushes (<= 1 ulp off)."""
    if a != a:
        return NAN
    if abs(a) < 2.0 ** -126:
        return math.copysign(INF, a)
    if a in (INF, -INF):
        return math.copysign(0.0, a)
    r = f32(1.0 / a)
    return math.copysign(0.0, r) if abs(r) < 2.0 ** -126 else r


def mulf(a, b):
    if a != a or b != b:
        return NAN
    if (a == 0 and abs(b) == INF) or (b == 0 and abs(a) == INF):
        return NAN
    if abs(a) == INF or abs(b) == INF:
        return math.copysign(INF, math.copysign(1, a) * math.copysign(1, b))
    return f32(a * b)


def divf(a, b):
    if a != a or b != b:
        return NAN
    if b == 0:
        if a == 0:
            return NAN
        return math.copysign(INF, math.copysign(1, a) * math.copysign(1, b))
    if abs(b) == INF:
        return NAN if abs(a) == INF else math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))
    if abs(a) == INF:
        return math.copysign(INF, math.copysign(1, a) * math.copysign(1, b))
    return f32(a / b)


def amax_drop_nan(v):
    best = None
    for x in v:
        if x == x:
            a = abs(x)
            best = a if best is None or a > best else best
    return NAN if best is None else best


def amax_prop_nan(v):
    if any(x != x for x in v):
        return NAN
    return max(abs(x) for x in v)


RCP6 = bits_f32(0x3E2AAAAB)

# ----------------------------------------- activation/weight quantizers (bit level)
# G is the *encode* scale 2688/amax, g its reciprocal (decode scale, amax/2688).


def q_vllm(v, G):
    """csrc .../nvfp4_utils.cuh cvt_warp_fp16_to_fp4: tests the rounded SF against 0."""
    sf = mulf(G, mulf(amax_drop_nan(v), RCP6))
    b = e4m3_enc(sf)
    SF = e4m3_dec(b)
    o = 0.0 if SF == 0 else rcp_ftz(mulf(SF, rcp_ftz(G)))
    return b, [e2m1_enc(mulf(x, o)) for x in v]


def q_trtllm(v, G):
    """flashinfer / TensorRT-LLM quantization_utils.cuh: tests the block amax against 0."""
    mx = amax_drop_nan(v)
    sf = mulf(G, mulf(mx, RCP6))
    b = e4m3_enc(sf)
    SF = e4m3_dec(b)
    o = 0.0 if mx == 0 else rcp_ftz(mulf(SF, rcp_ftz(G)))
    return b, [e2m1_enc(mulf(x, o)) for x in v]


def q_te(v, G):
    """flashinfer with fast math disabled (Transformer-Engine exact)."""
    mx = amax_drop_nan(v)
    sf = mulf(mx, mulf(G, f32(1.0 / 6.0))) if mx != 0 else 0.0
    b = e4m3_enc(sf)
    SF = e4m3_dec(b)
    o = 0.0 if mx == 0 else min(divf(1.0, mulf(SF, divf(1.0, G))), 3.4028234663852886e38)
    return b, [e2m1_enc(mulf(x, o)) for x in v]


def q_ct(v, G):
    """compressed-tensors (Oct 2025): clamp, zero scale byte replaced by 0.125, division."""
    sf = mulf(G, divf(amax_prop_nan(v), 6.0))
    if sf == sf:
        sf = max(-448.0, min(448.0, sf))
    b = e4m3_enc(sf, sat=False)
    if e4m3_dec(b) == 0:
        b = 0x20
    d = divf(e4m3_dec(b), G)
    out = []
    for x in v:
        t = divf(x, d)
        if t == t:
            t = max(-6.0, min(6.0, t))
        if t != t:
            out.append(None)
            continue
        c = e2m1_enc(t)
        # sign(x)*|q|: an exact zero input loses its sign; tiny negatives keep it
        if x == 0:
            c &= 7
        out.append(c)
    return b, out


def q_modelopt(v, g):
    """ModelOpt NVFP4QTensor: g = amax/2688, zero block -> 1.0, NON-saturating cast."""
    sf = divf(amax_prop_nan(v), mulf(6.0, g))
    if sf == 0:
        sf = 1.0
    b = e4m3_enc(sf, sat=False)
    d = mulf(e4m3_dec(b), g)
    out = []
    for x in v:
        t = divf(x, d)
        c = e2m1_enc(abs(t)) if t == t else 7
        out.append(c | (8 if t < 0 else 0))
    return b, out


def q_torchao(v, g):
    sf = divf(divf(amax_prop_nan(v), 6.0), g)
    sf = max(2.0 ** -6, min(448.0, sf)) if sf == sf else sf
    b = e4m3_enc(sf, sat=False)
    d = mulf(g, e4m3_dec(b))
    return b, [e2m1_enc(max(-6.0, min(6.0, divf(x, d)))) for x in v]


def q_46(v, G, err="mse"):
    """Four-over-six: candidates SF6 and SF4 = 1.5*SF6; strict < picks 4."""
    mx = amax_drop_nan(v)
    if mx == 0:
        return 0, [0] * len(v)
    sf6 = mulf(G, mulf(mx, RCP6))
    sf4 = mulf(sf6, 1.5)
    res = []
    for s in (sf4, sf6):
        b = e4m3_enc(s)
        o = rcp_ftz(mulf(e4m3_dec(b), rcp_ftz(G)))
        q = [e2m1_enc(mulf(x, o)) for x in v]
        d = mulf(e4m3_dec(b), rcp_ftz(G))
        e = 0.0
        for x, c in zip(v, q):
            t = e2m1_dec(c) * d - x
            e += t * t if err == "mse" else abs(t)
        res.append((e, b, q))
    return (res[0] if res[0][0] < res[1][0] else res[1])[1:]


def pack(codes):
    """Even element in the low nibble."""
    return [None if codes[i] is None or codes[i + 1] is None else codes[i] | (codes[i + 1] << 4)
            for i in range(0, len(codes), 2)]


# ------------------------------------------------------------ samples of docs/nvfp4.md 4.1


def samples(kind, n=65536, seed=1234):
    """n draws of one of the five distributions; "outch": 4096 channels, 0.5 % of them 50 times larger, a log-normal gain a token."""
    draw = random.Random(seed)
    normal, uniform = draw.gauss, draw.random
    if kind == "gauss":
        return [normal(0, 1) for _ in range(n)]
    if kind == "laplace":
        return [draw.expovariate(1) if uniform() < .5 else -draw.expovariate(1) for _ in range(n)]
    if kind == "t4":
        values = []
        for _ in range(n):
            chi_square = sum(normal(0, 1) ** 2 for _ in range(4))
            values.append(normal(0, 1) / math.sqrt(chi_square / 4))
        return values
    if kind == "outch":
        gains = [50.0 if uniform() < 0.005 else 1.0 for _ in range(4096)]
        values = []
        while len(values) < n:
            token = math.exp(normal(0, .5))
            values += [normal(0, 1) * gain * token for gain in gains]
        return values
    assert kind == "swiglu", kind
    values = []
    for _ in range(n):
        gate, up = normal(0, 2), normal(0, 2)
        values.append(gate / (1 + math.exp(-gate)) * up)
    return values


def export(directory):
    for kind in ("gauss", "laplace", "t4", "outch", "swiglu"):
        values = samples(kind)
        (pathlib.Path(directory) / f"{kind}.f32").write_bytes(struct.pack(f"<{len(values)}f", *values))


def selftest():
    assert [e2m1_enc(v) for v in E2M1] == list(range(8))
    for b in range(0x7F):
        assert e4m3_enc(e4m3_dec(b)) == b
        if b < 0x7E:
            mid = (e4m3_dec(b) + e4m3_dec(b + 1)) / 2
            assert e4m3_enc(mid) % 2 == 0
    assert e4m3_dec(0x7E) == 448 and e4m3_dec(8) == 2 ** -6 and e4m3_dec(1) == 2 ** -9
    assert bf16(1.00390625) == 1.0 and bf16(1.01171875) == 1.015625
    print("selftest ok")


if __name__ == "__main__":
    if sys.argv[1:2] == ["data"]:
        export(sys.argv[2])
    else:
        selftest()
