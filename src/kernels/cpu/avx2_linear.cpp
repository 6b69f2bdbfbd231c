// AVX2 and FMA: groups of 32 rows (layout.h) times tokens. Codes become float32 exactly in
// registers (q of E2M1 by two byte tables, E4M3 and scales through FP16), products and sums are FMA
// in float32.
//
// The one order of every sum: each lane is one output row; along k one FMA chain; with block scales
// a chain a block from zero, then total = fma(scale, chain, total). The direct kernels (1 to 4
// tokens from the codes) and the panel tiles (up to 6 tokens from expanded float32) both keep it,
// so a row's bits do not depend on the path. Latency is hidden by several chains of different rows
// and tokens.
//
// Intrinsics only; everything but avx2_fill_linear has internal linkage.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"

namespace sextant::cpu {
namespace {

constexpr int64_t kPrefetchBytes = 3072;

[[gnu::always_inline]] inline void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes, _MM_HINT_T0);
}

[[gnu::always_inline]] inline const __m128i* as128(const uint8_t* p) {
  return reinterpret_cast<const __m128i*>(p);
}
[[gnu::always_inline]] inline const __m256i* as256(const uint8_t* p) {
  return reinterpret_cast<const __m256i*>(p);
}

// 64 E2M1 codes of 16 rows, four columns: every 32-bit lane of low0 (rows 0-7) holds column 0 as
// BF16 in its low half and column 2 in its high half; high0 columns 1 and 3; low1, high1 rows 8-15.
struct Fp4Quad {
  __m256i low0, low1, high0, high1;
};

// BF16 of an E2M1 code by its two bytes. Code 13 (-3.0): BF16 0xC040, tables 0xC0 and 0x40.
[[gnu::always_inline]] inline Fp4Quad decode_fp4(const uint8_t* codes) {
  const __m256i top = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, static_cast<char>(0x80),
                    static_cast<char>(0xBF), static_cast<char>(0xBF), static_cast<char>(0xBF),
                    static_cast<char>(0xC0), static_cast<char>(0xC0), static_cast<char>(0xC0),
                    static_cast<char>(0xC0)));
  const __m256i bottom = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      0x00, 0x00, static_cast<char>(0x80), static_cast<char>(0xC0), 0x00, 0x40,
      static_cast<char>(0x80), static_cast<char>(0xC0), 0x00, 0x00, static_cast<char>(0x80),
      static_cast<char>(0xC0), 0x00, 0x40, static_cast<char>(0x80), static_cast<char>(0xC0)));
  const __m256i mask = _mm256_set1_epi8(0x0F);
  const __m256i v = _mm256_load_si256(as256(codes));
  const __m256i low = _mm256_and_si256(v, mask);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
  const __m256i low_top = _mm256_shuffle_epi8(top, low);
  const __m256i low_bottom = _mm256_shuffle_epi8(bottom, low);
  const __m256i high_top = _mm256_shuffle_epi8(top, high);
  const __m256i high_bottom = _mm256_shuffle_epi8(bottom, high);
  return {_mm256_unpacklo_epi8(low_bottom, low_top), _mm256_unpackhi_epi8(low_bottom, low_top),
          _mm256_unpacklo_epi8(high_bottom, high_top), _mm256_unpackhi_epi8(high_bottom, high_top)};
}

[[gnu::always_inline]] inline __m256 even_bf16(__m256i v) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}
[[gnu::always_inline]] inline __m256 odd_bf16(__m256i v) {
  return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

// 16 rows of one column (two vectors) by kind, half h of the group.
struct Pair {
  __m256 a, b;
};

struct LoadF32 {
  static constexpr int64_t kBytes = 128;  // a column of a group
  [[gnu::always_inline]] static Pair at(const uint8_t* column, int half) {
    const float* p = reinterpret_cast<const float*>(column) + half * kHalfRows;
    return {_mm256_load_ps(p), _mm256_load_ps(p + 8)};
  }
};
struct LoadBf16 {
  static constexpr int64_t kBytes = 64;
  [[gnu::always_inline]] static Pair at(const uint8_t* column, int half) {
    const __m256i v = _mm256_load_si256(as256(column + half * 32));
    return {even_bf16(v), odd_bf16(v)};
  }
};
struct LoadF16 {
  static constexpr int64_t kBytes = 64;
  [[gnu::always_inline]] static Pair at(const uint8_t* column, int half) {
    return {_mm256_cvtph_ps(_mm_load_si128(as128(column + half * 32))),
            _mm256_cvtph_ps(_mm_load_si128(as128(column + half * 32 + 16)))};
  }
};
// s eeee mmm in the upper byte of 16 bits, shifted right by one with the sign kept and bit 14
// cleared, is FP16 s 0eeee mmm0000000: the value times 2^-8, subnormals included. Example: 0x38
// (1.0) gives 0x1C00 = 2^(7 - 15).
struct LoadFp8 {
  static constexpr int64_t kBytes = 32;
  [[gnu::always_inline]] static Pair at(const uint8_t* column, int half) {
    const __m256i v = _mm256_load_si256(as256(column));
    const __m256i zero = _mm256_setzero_si256();
    const __m256i wide = half == 0 ? _mm256_unpacklo_epi8(zero, v) : _mm256_unpackhi_epi8(zero, v);
    const __m256i fp16 = _mm256_and_si256(_mm256_srai_epi16(wide, 1),
                                          _mm256_set1_epi16(static_cast<int16_t>(0xBFFF)));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(fp16)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(fp16, 1))};
  }
};

// Scales of 16 rows. E4M3 times 2^-8 as in LoadFp8 (packing cleared the sign); UE8M0 0 is 2^-127,
// whose bit pattern is not its exponent byte.
struct ScaleE4m3 {
  [[gnu::always_inline]] static Pair at(const uint8_t* p) {
    const __m256i fp16 = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_load_si128(as128(p))), 7);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(fp16)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(fp16, 1))};
  }
};
struct ScaleUe8m0 {
  [[gnu::always_inline]] static __m256 widen(__m128i bytes) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(bits, _mm256_set1_epi32(0x00400000)));
  }
  [[gnu::always_inline]] static Pair at(const uint8_t* p) {
    const __m128i bytes = _mm_load_si128(as128(p));
    return {widen(bytes), widen(_mm_srli_si128(bytes, 8))};
  }
};

// Accumulators of T tokens and H halves of a group.
template <int T, int H>
struct Sums {
  __m256 v[T][2 * H];
  [[gnu::always_inline]] void zero() {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
      for (int i = 0; i < 2 * H; ++i) v[t][i] = _mm256_setzero_ps();
    }
  }
};

template <int T, int H>
[[gnu::always_inline]] inline void fma_column(Sums<T, H>& sums, int h, __m256 a, __m256 b,
                                              const float* x, int64_t x_stride) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m256 xt = _mm256_broadcast_ss(x + t * x_stride);
    sums.v[t][2 * h] = _mm256_fmadd_ps(a, xt, sums.v[t][2 * h]);
    sums.v[t][2 * h + 1] = _mm256_fmadd_ps(b, xt, sums.v[t][2 * h + 1]);
  }
}

// Four columns (quad q) of 16 rows of FP4 into the block's sums.
template <int T>
[[gnu::always_inline]] inline void fp4_quad(Sums<T, 1>& sums, const uint8_t* codes, const float* x,
                                            int64_t x_stride) {
  const Fp4Quad w = decode_fp4(codes);
  fma_column<T, 1>(sums, 0, even_bf16(w.low0), even_bf16(w.low1), x, x_stride);
  fma_column<T, 1>(sums, 0, even_bf16(w.high0), even_bf16(w.high1), x + 1, x_stride);
  fma_column<T, 1>(sums, 0, odd_bf16(w.low0), odd_bf16(w.low1), x + 2, x_stride);
  fma_column<T, 1>(sums, 0, odd_bf16(w.high0), odd_bf16(w.high1), x + 3, x_stride);
}

// Half g of the sums into half h of the totals.
template <int T, int H, int G>
[[gnu::always_inline]] inline void add_scaled(Sums<T, H>& totals, int h, const Sums<T, G>& sums,
                                              int g, Pair scale) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    totals.v[t][2 * h] = _mm256_fmadd_ps(scale.a, sums.v[t][2 * g], totals.v[t][2 * h]);
    totals.v[t][2 * h + 1] = _mm256_fmadd_ps(scale.b, sums.v[t][2 * g + 1], totals.v[t][2 * h + 1]);
  }
}

template <int T, int H>
[[gnu::always_inline]] inline void store(const Sums<T, H>& totals, int first_half, float* out) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int i = 0; i < 2 * H; ++i)
      _mm256_storeu_ps(out + t * kGroupRows + first_half * kHalfRows + i * 8, totals.v[t][i]);
  }
}

// Registers: 4 T H accumulators at most 8, beside decoded codes and tables; so 3 and 4 tokens take
// the halves of a group one after the other, the second from L1.
template <int T>
constexpr int kHalvesAtOnce = T <= 2 ? 2 : 1;

// B blocks of 16 columns side by side: their sums are independent, and one token has too few chains
// in one block to hide the latency of FMA. One half of the group after the other: the sums of both
// would not stay in registers, and a sum that goes through memory is three times as slow.
template <class Scale, int T, int B>
[[gnu::always_inline]] inline void fp4_blocks(Sums<T, kHalvesAtOnce<T>>& totals, int first,
                                              const uint8_t* block, const uint8_t* scales,
                                              const float* x, int64_t x_stride) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalvesAtOnce<T>; ++h) {
    Sums<T, 1> sums[B];
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) sums[b].zero();
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b)
        fp4_quad<T>(sums[b], block + b * 256 + (first + h) * 128 + q * 32, x + b * 16 + 4 * q,
                    x_stride);
    }
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b)
      add_scaled(totals, h, sums[b], 0,
                 Scale::at(scales + b * kGroupRows + (first + h) * kHalfRows));
  }
}

template <class Scale, int T>
void direct_fp4(const DirectArgs& args) {
  constexpr int H = kHalvesAtOnce<T>;
  constexpr int B = T == 1 ? 2 : 1;
  const int64_t n_blocks = args.k / 16;
  for (int first = 0; first < 2; first += H) {
    const uint8_t* block = args.group;
    const uint8_t* scales = args.group + n_blocks * 256;
    const float* x = args.x;
    Sums<T, H> totals;
    totals.zero();
    int64_t b = 0;
    for (; b + B <= n_blocks; b += B) {
#pragma GCC unroll 8
      for (int line = 0; line < 4 * B; ++line) prefetch(block + 64 * line);
      fp4_blocks<Scale, T, B>(totals, first, block, scales, x, args.x_stride);
      block += B * 256;
      scales += B * kGroupRows;
      x += B * 16;
    }
    if (b < n_blocks) fp4_blocks<Scale, T, 1>(totals, first, block, scales, x, args.x_stride);
    store<T, H>(totals, first, args.totals);
  }
}

template <class Load, int T, int H>
[[gnu::always_inline]] inline void chain(Sums<T, H>& sums, const uint8_t* column, int first,
                                         const float* x, int64_t x_stride, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    prefetch(column);
    if (Load::kBytes > 64) prefetch(column + 64);
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const Pair w = Load::at(column, first + h);
      fma_column<T, H>(sums, h, w.a, w.b, x + k, x_stride);
    }
    column += Load::kBytes;
  }
}

template <class Load, int T>
void direct_plain(const DirectArgs& args) {
  constexpr int H = kHalvesAtOnce<T>;
  for (int first = 0; first < 2; first += H) {
    Sums<T, H> totals;
    totals.zero();
    chain<Load, T, H>(totals, args.group, first, args.x, args.x_stride, args.k);
    store<T, H>(totals, first, args.totals);
  }
}

template <int T>
void direct_fp8_blocks(const DirectArgs& args) {
  constexpr int H = kHalvesAtOnce<T>;
  for (int first = 0; first < 2; first += H) {
    const float* scales =
        reinterpret_cast<const float*>(args.group + args.k * LoadFp8::kBytes) + first * kHalfRows;
    Sums<T, H> totals;
    totals.zero();
    for (int64_t k = 0; k < args.k; k += args.block_k) {
      const int64_t n = args.k - k < args.block_k ? args.k - k : args.block_k;
      Sums<T, H> sums;
      sums.zero();
      chain<LoadFp8, T, H>(sums, args.group + k * LoadFp8::kBytes, first, args.x + k, args.x_stride,
                           n);
#pragma GCC unroll 2
      for (int h = 0; h < H; ++h)
        add_scaled(
            totals, h, sums, h,
            {_mm256_load_ps(scales + h * kHalfRows), _mm256_load_ps(scales + h * kHalfRows + 8)});
      scales += kGroupRows;
    }
    store<T, H>(totals, first, args.totals);
  }
}

template <class Scale>
void expand_fp4(const ExpandArgs& args) {
  const int64_t n = args.k_end - args.k_begin;
  const uint8_t* scales = args.group + args.k / 16 * 256;
  for (int half = 0; half < 2; ++half) {
    float* out = args.panel + half * n * kHalfRows;
    float* out_scales = args.scales + half * (n / 16) * kHalfRows;
    for (int64_t k = args.k_begin; k < args.k_end; k += 16) {
      const uint8_t* block = args.group + k / 16 * 256 + half * 128;
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const Fp4Quad w = decode_fp4(block + q * 32);
        _mm256_store_ps(out, even_bf16(w.low0));
        _mm256_store_ps(out + 8, even_bf16(w.low1));
        _mm256_store_ps(out + 16, even_bf16(w.high0));
        _mm256_store_ps(out + 24, even_bf16(w.high1));
        _mm256_store_ps(out + 32, odd_bf16(w.low0));
        _mm256_store_ps(out + 40, odd_bf16(w.low1));
        _mm256_store_ps(out + 48, odd_bf16(w.high0));
        _mm256_store_ps(out + 56, odd_bf16(w.high1));
        out += 64;
      }
      const Pair scale = Scale::at(scales + k / 16 * kGroupRows + half * kHalfRows);
      _mm256_store_ps(out_scales, scale.a);
      _mm256_store_ps(out_scales + 8, scale.b);
      out_scales += kHalfRows;
    }
  }
}

template <class Load>
void expand_plain(const ExpandArgs& args) {
  const int64_t n = args.k_end - args.k_begin;
  for (int half = 0; half < 2; ++half) {
    float* out = args.panel + half * n * kHalfRows;
    for (int64_t k = args.k_begin; k < args.k_end; ++k) {
      const Pair w = Load::at(args.group + k * Load::kBytes, half);
      _mm256_store_ps(out, w.a);
      _mm256_store_ps(out + 8, w.b);
      out += kHalfRows;
    }
  }
}

void expand_fp8_blocks(const ExpandArgs& args) {
  expand_plain<LoadFp8>(args);
  const int64_t n_blocks = (args.k_end - args.k_begin + args.block_k - 1) / args.block_k;
  const float* scales = reinterpret_cast<const float*>(args.group + args.k * LoadFp8::kBytes) +
                        args.k_begin / args.block_k * kGroupRows;
  for (int half = 0; half < 2; ++half)
    for (int64_t b = 0; b < n_blocks; ++b)
      for (int64_t i = 0; i < kHalfRows; i += 8)
        _mm256_store_ps(args.scales + (half * n_blocks + b) * kHalfRows + i,
                        _mm256_load_ps(scales + b * kGroupRows + half * kHalfRows + i));
}

// n columns of a panel into the sums of T tokens.
template <int T>
[[gnu::always_inline]] inline void tile_chain(Sums<T, 1>& sums, const float* panel, const float* x,
                                              int64_t x_stride, int64_t n) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < n; ++k) {
    const __m256 a = _mm256_load_ps(panel + k * kHalfRows);
    const __m256 b = _mm256_load_ps(panel + k * kHalfRows + 8);
    fma_column<T, 1>(sums, 0, a, b, x + k, x_stride);
  }
}

template <int T>
void tile_plain(const TileArgs& args) {
  Sums<T, 1> sums;
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    sums.v[t][0] = _mm256_load_ps(args.totals + t * kGroupRows);
    sums.v[t][1] = _mm256_load_ps(args.totals + t * kGroupRows + 8);
  }
  tile_chain<T>(sums, args.panel, args.x, args.x_stride, args.k);
  store<T, 1>(sums, 0, args.totals);
}

template <int T>
void tile_scaled(const TileArgs& args) {
  const float* scales = args.scales;
  for (int64_t k = 0; k < args.k; k += args.block_k) {
    const int64_t n = args.k - k < args.block_k ? args.k - k : args.block_k;
    Sums<T, 1> sums;
    sums.zero();
    tile_chain<T>(sums, args.panel + k * kHalfRows, args.x + k, args.x_stride, n);
    const __m256 a = _mm256_load_ps(scales);
    const __m256 b = _mm256_load_ps(scales + 8);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      float* total = args.totals + t * kGroupRows;
      _mm256_store_ps(total, _mm256_fmadd_ps(a, sums.v[t][0], _mm256_load_ps(total)));
      _mm256_store_ps(total + 8, _mm256_fmadd_ps(b, sums.v[t][1], _mm256_load_ps(total + 8)));
    }
    scales += kHalfRows;
  }
}

void prepare(const float* x, int64_t n, bool bf16, float* out, int64_t n_padded) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    _mm256_storeu_ps(out + i, bf16 ? _mm256_castsi256_ps(round_bf16(v)) : v);
  }
  for (; i < n; ++i) {
    const __m256 v = _mm256_broadcast_ss(x + i);
    out[i] = _mm256_cvtss_f32(bf16 ? _mm256_castsi256_ps(round_bf16(v)) : v);
  }
  for (; i < n_padded; ++i) out[i] = 0.0F;
}

template <class Load>
void fill_plain(Isa* isa, Kind kind) {
  isa->direct[kind][0] = direct_plain<Load, 1>;
  isa->direct[kind][1] = direct_plain<Load, 2>;
  isa->direct[kind][2] = direct_plain<Load, 3>;
  isa->direct[kind][3] = direct_plain<Load, 4>;
  isa->expand[kind] = expand_plain<Load>;
}

template <class Scale>
void fill_fp4(Isa* isa, Kind kind) {
  isa->direct[kind][0] = direct_fp4<Scale, 1>;
  isa->direct[kind][1] = direct_fp4<Scale, 2>;
  isa->direct[kind][2] = direct_fp4<Scale, 3>;
  isa->direct[kind][3] = direct_fp4<Scale, 4>;
  isa->expand[kind] = expand_fp4<Scale>;
}

template <int T>
void fill_tile(Isa* isa) {
  isa->tile_plain[T - 1] = tile_plain<T>;
  isa->tile_scaled[T - 1] = tile_scaled<T>;
}

}  // namespace

void avx2_fill_linear(Isa* isa) {
  fill_plain<LoadF32>(isa, kKindF32);
  fill_plain<LoadBf16>(isa, kKindBf16);
  fill_plain<LoadF16>(isa, kKindF16);
  fill_plain<LoadFp8>(isa, kKindFp8);
  isa->direct[kKindFp8Blocks][0] = direct_fp8_blocks<1>;
  isa->direct[kKindFp8Blocks][1] = direct_fp8_blocks<2>;
  isa->direct[kKindFp8Blocks][2] = direct_fp8_blocks<3>;
  isa->direct[kKindFp8Blocks][3] = direct_fp8_blocks<4>;
  isa->expand[kKindFp8Blocks] = expand_fp8_blocks;
  fill_fp4<ScaleE4m3>(isa, kKindNvfp4);
  fill_fp4<ScaleUe8m0>(isa, kKindMxfp4);
  fill_tile<1>(isa);
  fill_tile<2>(isa);
  fill_tile<3>(isa);
  fill_tile<4>(isa);
  fill_tile<5>(isa);
  fill_tile<6>(isa);
  isa->prepare = prepare;
}

}  // namespace sextant::cpu
