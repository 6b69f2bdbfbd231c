"""Formats and weight quantizers in plain numpy, written from docs/nvfp4.md (sections in brackets): E2M1, E4M3, UE8M0, and what
ModelOpt (profile D), compressed-tensors (profile C) and the FP8 and MXFP4 producers make of a matrix."""
import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e4m3_values():
    """The 127 finite non-negative values by byte: subnormals m * 2^-9, then (1 + m/8) * 2^(e-7) [1.2]."""
    exponent, m = np.divmod(np.arange(127), 8)
    return np.where(exponent == 0, m * 2.0 ** -9, (1 + m / 8) * 2.0 ** (exponent - 7.0))


E4M3 = e4m3_values()
BETWEEN = (E4M3[:-1] + E4M3[1:]) / 2  # exact in float64


def e4m3_encode(x):
    """Bytes of the nearest value, ties to the even byte, saturating at 448."""
    a = np.abs(np.asarray(x, np.float64))
    low = np.searchsorted(BETWEEN, a, side="left")  # a tie stays below
    tie = (low < 126) & (BETWEEN[np.minimum(low, 125)] == a) & (low % 2 == 1)
    return ((low + tie) | (np.signbit(x).astype(np.int64) << 7)).astype(np.uint8)


def e4m3_decode(byte):
    byte = np.asarray(byte, np.uint8)
    values = np.append(E4M3, np.nan)[byte & 0x7F]
    return np.where(byte & 0x80, -values, values)


def e2m1_encode(x):
    """Codes of the nearest value, ties to the even code, saturating at 6 [1.1]. Zeros of either sign give code 0, as profiles C and D
    do; a negative number that rounds to zero keeps its sign (code 8)."""
    a = np.abs(x)
    code = np.zeros(a.shape, np.uint8)
    for i, middle in enumerate([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]):  # between code i and code i + 1
        code += (a > middle) if i % 2 == 0 else (a >= middle)
    return code | ((x < 0).astype(np.uint8) << 3)


def e2m1_decode(code):
    return np.where(code & 8, -E2M1[code & 7], E2M1[code & 7])


def pack(codes):
    """Two codes a byte along the row, the even element in the low nibble."""
    return codes[:, 0::2] | codes[:, 1::2] << 4


def unpack(packed):
    return np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)


def block_amax(w, size):
    return np.abs(w).reshape(w.shape[0], -1, size).max(-1)


def spread(scales, size):
    return np.repeat(scales, size, axis=1)


def nvfp4_d(w, amax=None):
    """Profile D [1.4]: (packed codes, scale bytes, g float32). amax may be that of a fused group."""
    w = w.astype(np.float32)
    g = np.float32(np.abs(w).max() if amax is None else amax) / np.float32(6 * 448)
    t = block_amax(w, 16) / (np.float32(6) * g)
    s = e4m3_encode(np.where(t == 0, np.float32(1), t))
    d = e4m3_decode(s).astype(np.float32) * g
    return pack(e2m1_encode(w / spread(np.where(d == 0, np.float32(1), d), 16))), s, g


def nvfp4_c(w, amax=None):
    """Profile C [1.4]: (packed codes, scale bytes, G float32)."""
    w = w.astype(np.float32)
    G = np.float32(448 * 6) / np.float32(np.abs(w).max() if amax is None else amax)
    s = e4m3_encode(np.clip(G * (block_amax(w, 16) / np.float32(6)), -448, 448))
    s = np.where(s == 0, 0x20, s).astype(np.uint8)
    d = e4m3_decode(s).astype(np.float32) / G
    return pack(e2m1_encode(np.clip(w / spread(d, 16), -6, 6))), s, G


def nvfp4_values(packed, s, g):
    """f32(S * g), then f32(q * d) [1.6]. For a divisor give d = S / G instead: see nvfp4_values_ct."""
    return (e2m1_decode(unpack(packed)).astype(np.float32) * spread(e4m3_decode(s).astype(np.float32) * np.float32(g), 16))


def nvfp4_values_ct(packed, s, G):
    return (e2m1_decode(unpack(packed)).astype(np.float32) * spread(e4m3_decode(s).astype(np.float32) / np.float32(G), 16))


def mxfp4(w, up=True):
    """(packed codes, UE8M0 bytes) per 32 [1.3]: exponents rounded up, or floor(log2 amax) - 2 as compressed-tensors has it."""
    amax = np.maximum(block_amax(w, 32), 2.0 ** -100)
    exponent = np.ceil(np.log2(amax / 6)) if up else np.floor(np.log2(amax)) - 2
    codes = e2m1_encode(np.clip(w / spread(2.0 ** exponent, 32), -6, 6))
    return pack(codes), (exponent + 127).astype(np.uint8)


def fp8_blocks(w, rows, columns):
    """(E4M3 bytes, float32 scales [ceil(N / rows), ceil(K / columns)]); blocks at the edges are partial [2.4]."""
    n, k = w.shape
    padded = np.zeros((-(-n // rows) * rows, -(-k // columns) * columns), np.float32)
    padded[:n, :k] = w
    amax = np.abs(padded).reshape(padded.shape[0] // rows, rows, -1, columns).max((1, 3))
    scales = np.maximum(amax, 1e-10).astype(np.float32) / np.float32(448)
    whole = np.repeat(np.repeat(scales, rows, 0)[:n], columns, 1)[:, :k]
    return e4m3_encode(w.astype(np.float32) / whole), scales
