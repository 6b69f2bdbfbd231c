// Shared by the two linear kernels (BF16 pairs, float32): decoding packed weights into a BF16 panel
// and the walk over chunks of k, tiles of tokens and groups of rows. Per-ISA code: only intrinsics
// through avx512_vec.h, everything in an unnamed namespace.
//
// What must stay true: an output element is one chain over ascending k, whatever the tile (of
// kFp4Words a chain over blocks of 16, each a chain from zero); between chunks the chain rests in y
// as a float32, which is exact.
#pragma once

#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kFarBytes = 16384;
constexpr int64_t kLine = 64;

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Decode reads every byte once: part `part` (of `bytes` each, up to 320) of the block kFarBytes
// ahead goes to L2. Parts lie between the groups' arithmetic, all lines at once would wait for the
// line buffers of L1.
inline void prefetch_part(const unsigned char* block, int64_t part, int64_t bytes) {
  const int64_t first = (part * bytes + kLine - 1) / kLine * kLine;
#pragma GCC unroll 5
  for (int64_t i = 0; i < 5; ++i)
    if (first + i * kLine < (part + 1) * bytes) prefetch_l2(block + kFarBytes + first + i * kLine);
}

// A 128-entry table in two registers.
struct Table128 {
  alignas(64) uint8_t byte[128];
};
struct Table64 {
  alignas(64) uint8_t byte[64];
};

// BF16 bits of (1 + s/8) * |E2M1 code| * 2^8. The product has six significant bits.
// Example: code 3 (1.5), s 4 (1.5): 2.25 * 2^8 = 1.125 * 2^9, exponent field 136, mantissa
// 0.125 * 128 = 16: 136 << 7 | 16 = 0x4410.
constexpr uint32_t nvfp4_bits(uint32_t code, uint32_t s) {
  constexpr uint32_t kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  uint32_t significand = kDoubled[code] * (8 + s);  // the value times 16
  if (significand == 0) return 0;
  uint32_t exponent = 127 + 8 - 4 + 7;  // of a significand in [128, 256)
  while (significand < 128) {
    significand *= 2;
    --exponent;
  }
  return exponent << 7 | (significand & 127U);
}

// Low byte by code | s << 3.
constexpr Table64 nvfp4_low_table() {
  Table64 t{};
  for (uint32_t i = 0; i < 64; ++i)
    t.byte[i] = static_cast<uint8_t>(nvfp4_bits(i & 7U, i >> 3) & 0xFFU);
  return t;
}
// High byte by nibble | (s >= 3) << 4, twice: it holds the sign and the exponent without its last
// bit; s matters only by whether 1.5 * (1 + s/8) reaches 2. Zeros have no sign, so that the
// saturating subtraction of E octaves leaves them zero.
constexpr Table64 nvfp4_high_table() {
  Table64 t{};
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t bits = nvfp4_bits(i & 7U, (i & 16U) != 0 ? 3 : 0);
    t.byte[i] = static_cast<uint8_t>(bits == 0 ? 0 : bits >> 8 | (i & 8U) << 4);
  }
  return t;
}
// By s, any bit 3: the fifth bit of the high table's index; repeated in each quarter.
constexpr Table64 nvfp4_select_table() {
  Table64 t{};
  for (uint32_t i = 0; i < 64; ++i) t.byte[i] = static_cast<uint8_t>((i & 7U) >= 3 ? 16U : 0U);
  return t;
}
// Byte b of quarter q belongs to row 4q + b % 8 / 2.
constexpr Table64 row_table() {
  Table64 t{};
  for (uint32_t i = 0; i < 64; ++i) t.byte[i] = static_cast<uint8_t>(i / 16 * 4 + i % 8 / 2);
  return t;
}
// BF16 bits of an E4M3 magnitude: normal e, m: exponent e + 120; subnormal m * 2^-9, normalized.
// 0x7F is NaN.
constexpr uint32_t e4m3_bits(uint32_t code) {
  const uint32_t e = code >> 3;
  uint32_t m = code & 7U;
  if (code == 0x7F) return 0x7FC0;
  if (e != 0) return (e + 120) << 7 | m << 4;
  if (m == 0) return 0;
  uint32_t exponent = 127 - 9 + 3;
  while (m < 8) {
    m *= 2;
    --exponent;
  }
  return exponent << 7 | (m & 7U) << 4;
}
constexpr Table128 e4m3_table(uint32_t shift) {
  Table128 t{};
  for (uint32_t i = 0; i < 128; ++i)
    t.byte[i] = static_cast<uint8_t>((e4m3_bits(i) >> shift) & 0xFFU);
  return t;
}

constexpr Table64 kNvfp4Low = nvfp4_low_table();
constexpr Table64 kNvfp4High = nvfp4_high_table();
constexpr Table64 kNvfp4Select = nvfp4_select_table();
constexpr Table64 kRowOfByte = row_table();
constexpr Table128 kE4m3Low = e4m3_table(0);
constexpr Table128 kE4m3High = e4m3_table(8);

// The upper half of the float32 of an E2M1 code: its BF16. Example: 6 = 1.5 * 2^2 is 129 << 7 | 64.
constexpr uint32_t e2m1_bits(uint32_t code) {
  constexpr uint32_t kMagnitudes[8] = {0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
  return kMagnitudes[code & 7U] | (code & 8U) << 12;
}
struct E2m1Tables {
  alignas(64) uint16_t bf16[32];  // twice: the index has five bits, a code four
  alignas(64) uint32_t f32[16];
};
constexpr E2m1Tables e2m1_tables() {
  E2m1Tables t{};
  for (uint32_t i = 0; i < 32; ++i) t.bf16[i] = static_cast<uint16_t>(e2m1_bits(i & 15U));
  for (uint32_t i = 0; i < 16; ++i) t.f32[i] = e2m1_bits(i) << 16;
  return t;
}
constexpr E2m1Tables kE2m1 = e2m1_tables();

// The 16 scales of a group in kFp4Words: 2^(8 - E) has exponent field 135 - E = 104 + (31 - E).
inline Floats words_scale(const unsigned char* p) {
  return as_floats(add_u32(shift_left_u32<20>(widen_u8(p)), set1_u32(104U << 23)));
}

// kNvfp4, scaled.
struct Nvfp4Decoder {
  Bits low = load_b(kNvfp4Low.byte);
  Bits high = load_b(kNvfp4High.byte);
  Bits select = load_b(kNvfp4Select.byte);
  Bits rows = load_b(kRowOfByte.byte);
  Bits mask3 = set1_u8(7);
  Bits mask4 = set1_u8(15);
  Bits mask_octaves = set1_u32(0x0F800F80U);

  struct Scale {
    Bits low_index;   // bits 3 to 5: s; others undefined
    Bits high_index;  // bit 4
    Bits octaves;     // E << 7, words in the order of the weights
  };
  Scale scale(const unsigned char* p) const {
    const Bits s = lookup16_u8(broadcast16_b(p), rows);
    return {shift_left_u16<3>(s), lookup16_u8(select, and_b(s, mask4)),
            and_b(shift_left_u16<4>(interleave_low_u8(s, s)), mask_octaves)};
  }
  // The low nibbles of v: two vectors of BF16 pairs.
  void pairs(Bits v, const Scale& s, Bits* out) const {
    const Bits bottom = lookup64_u8(low, select_b(mask3, v, s.low_index));
    const Bits top = lookup64_u8(high, select_b(mask4, v, s.high_index));
    out[0] = sub_saturated_u16(interleave_low_u8(bottom, top), s.octaves);
    out[1] = sub_saturated_u16(interleave_high_u8(bottom, top), s.octaves);
  }
  // 64 bytes of nibbles: four vectors, 8 of k.
  void eight(const unsigned char* p, const Scale& s, Bits out[4]) const {
    const Bits v = load_b(p);
    pairs(v, s, out);
    pairs(shift_right_u16<4>(v), s, out + 2);
  }
};

// Decodes k [k0, k1) of a supergroup into pair vectors [pair][group].
inline void panel_nvfp4(const LinearTask& t, int64_t k0, int64_t k1, unsigned char* panel) {
  const Nvfp4Decoder decoder;
  const int64_t pair_stride = t.groups * 64;
  const int64_t block_bytes = t.groups * 144;
  for (int64_t b = k0 / 16; b < k1 / 16; ++b) {
    const unsigned char* block = t.data + b * block_bytes;
    for (int64_t line = 0; line < block_bytes; line += kLine)
      prefetch(block + kPrefetchBytes + line);
    for (int64_t g = 0; g < t.groups; ++g) {
      const Nvfp4Decoder::Scale scale = decoder.scale(block + g * 16);
      const unsigned char* codes = block + t.groups * 16 + g * 128;
      unsigned char* out = panel + g * 64;
      for (int half = 0; half < 2; ++half) {
        Bits w[4];
        decoder.eight(codes + half * 64, scale, w);
        for (int i = 0; i < 4; ++i) store_b(out + (half * 4 + i) * pair_stride, w[i]);
      }
    }
    panel += 8 * pair_stride;
  }
}

// Likewise from kFp4Words, unscaled; the blocks' scales beside it, [block][group].
inline void panel_words(const LinearTask& t, int64_t k0, int64_t k1, unsigned char* panel,
                        float* scales) {
  const Bits table = load_b(kE2m1.bf16);
  const int64_t pair_stride = t.groups * 64;
  const int64_t block_bytes = t.groups * 144;
  for (int64_t b = k0 / 16; b < k1 / 16; ++b) {
    const unsigned char* block = t.data + b * block_bytes;
    for (int64_t line = 0; line < block_bytes; line += kLine)
      prefetch(block + kPrefetchBytes + line);
    for (int64_t g = 0; g < t.groups; ++g) {
      store_f(scales + g * kGroupRows, words_scale(block + g * 16));
      for (int64_t half = 0; half < 2; ++half) {
        const Bits v = load_b(block + t.groups * 16 + g * 128 + half * 64);
        unsigned char* out = panel + g * 64 + half * 4 * pair_stride;
        store_b(out, lookup32_u16(table, v));
        store_b(out + pair_stride, lookup32_u16(table, shift_right_u16<4>(v)));
        store_b(out + 2 * pair_stride, lookup32_u16(table, shift_right_u16<8>(v)));
        store_b(out + 3 * pair_stride, lookup32_u16(table, shift_right_u16<12>(v)));
      }
    }
    panel += 8 * pair_stride;
    scales += t.groups * kGroupRows;
  }
}

inline void panel_fp8(const LinearTask& t, int64_t k0, int64_t k1, unsigned char* panel) {
  const Bits low0 = load_b(kE4m3Low.byte);
  const Bits low1 = load_b(kE4m3Low.byte + 64);
  const Bits high0 = load_b(kE4m3High.byte);
  const Bits high1 = load_b(kE4m3High.byte + 64);
  const Bits magnitude = set1_u8(0x7F);
  const int64_t pair_stride = t.groups * 64;
  for (int64_t b = k0 / 16; b < k1 / 16; ++b) {
    const unsigned char* block = t.data + b * t.groups * 256;
    for (int64_t g = 0; g < t.groups; ++g) {
      for (int64_t quad = 0; quad < 4; ++quad) {
        const unsigned char* codes = block + g * 256 + quad * 64;
        prefetch(codes + kPrefetchBytes);
        const Bits v = load_b(codes);
        const Bits low = lookup128_u8(low0, low1, v);
        const Bits high = select_b(magnitude, lookup128_u8(high0, high1, v), v);
        unsigned char* out = panel + g * 64 + quad * 2 * pair_stride;
        store_b(out, interleave_low_u8(low, high));
        store_b(out + pair_stride, interleave_high_u8(low, high));
      }
    }
    panel += 8 * pair_stride;
  }
}

// A register tile: some groups of 16 rows times T tokens over one chunk of k.
struct Tile {
  const unsigned char* w = nullptr;  // first pair, first group
  int64_t w_stride = 0;              // bytes from a pair of k to the next
  const void* x = nullptr;           // first pair: T words of two BF16, or 2 T floats
  int64_t n_pairs = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t rows = 0;                     // valid rows from the first group on
  bool first = false;                   // no chain in y yet
  const float* scales = nullptr;        // the chunk is a chain of its own: y += chain * scale
  const float* block_scales = nullptr;  // kFp4Words: those of the first block
  int64_t block_stride = 0;             // floats from a block to the next
  const float* multiplier = nullptr;    // set with the last chunk: y *= multiplier
};
using TileFunction = void (*)(const Tile&);

inline Floats tile_start(const Tile& t, int64_t g, int64_t token) {
  if (t.first || t.scales != nullptr) return zero_f();
  return load_f(t.y + token * t.y_stride + g * kGroupRows, first_lanes(t.rows - g * kGroupRows));
}

inline void tile_finish(const Tile& t, int64_t g, int64_t token, Floats acc) {
  float* y = t.y + token * t.y_stride + g * kGroupRows;
  const LaneMask valid = first_lanes(t.rows - g * kGroupRows);
  if (t.scales != nullptr) {
    const Floats scale = load_f(t.scales + g * kGroupRows);
    acc = t.first ? mul_f(acc, scale) : fma_f(acc, scale, load_f(y, valid));
  }
  if (t.multiplier != nullptr) acc = mul_f(acc, load_f(t.multiplier + g * kGroupRows));
  store_f(y, acc, valid);
}

// The groups of one tile of T tokens: four at once while the accumulators fit, else two, else one.
template <class Kernel>
inline void run_groups(const LinearTask& t, Tile tile, int64_t width) {
  for (int64_t g = 0; g < t.groups;) {
    const int64_t left = t.groups - g;
    const int64_t n = left >= 4 && width <= 6 ? 4 : (left >= 2 ? 2 : 1);
    Tile part = tile;
    part.w += g * Kernel::group_bytes(t.layout);
    part.y += g * kGroupRows;
    part.rows -= g * kGroupRows;
    if (part.scales != nullptr) part.scales += g * kGroupRows;
    if (part.block_scales != nullptr) part.block_scales += g * kGroupRows;
    if (part.multiplier != nullptr) part.multiplier += g * kGroupRows;
    Kernel::tile(t.layout, n, width)(part);
    g += n;
  }
}

// A chain of blocks: each block's sums from zero by add(w, x, n_pairs, sums), then one FMA by its
// scales; by 1 where the weights have theirs in them (kScaled false). x has kWords words
// a pair.
template <int kGroups, int kTokens, int kWords, bool kScaled = true, class Word, class Add>
inline void run_blocks(const Tile& t, const Word* x, Floats acc[kGroups][kTokens], Add&& add) {
  const unsigned char* w = t.w;
  const float* scales = t.block_scales;
  for (int64_t pair = 0; pair < t.n_pairs; pair += 8) {
    Floats sums[kGroups][kTokens];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
      for (int i = 0; i < kTokens; ++i) sums[g][i] = zero_f();
    add(w, x, 8, sums);
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) {
      const Floats scale = kScaled ? load_f(scales + g * kGroupRows) : set1_f(1.0F);
#pragma GCC unroll 16
      for (int i = 0; i < kTokens; ++i) acc[g][i] = fma_f(sums[g][i], scale, acc[g][i]);
    }
    w += 8 * t.w_stride;
    x += 8 * kWords;
    if constexpr (kScaled) scales += t.block_stride;
  }
}

// Decode of kFp4Words: weights go from memory through registers into the sums, no panel between.
// eight(codes, k, sums) adds half a block of one group, the eight columns from k on.
template <int kGroups, int kTokens, class Eight>
inline void run_fused(const LinearTask& t, Eight&& eight) {
  Floats acc[kGroups][kTokens];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) acc[g][i] = zero_f();
  const unsigned char* block = t.data;
  for (int64_t b = 0; b < t.k_padded / 16; ++b) {
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) {
      prefetch_part(block, g, 144);
      const unsigned char* codes = block + kGroups * 16 + g * 128;
      Floats sums[kTokens];
#pragma GCC unroll 16
      for (int i = 0; i < kTokens; ++i) sums[i] = zero_f();
      eight(load_b(codes), b * 16, sums);
      eight(load_b(codes + 64), b * 16 + 8, sums);
      const Floats scale = words_scale(block + g * 16);
#pragma GCC unroll 16
      for (int i = 0; i < kTokens; ++i) acc[g][i] = fma_f(sums[i], scale, acc[g][i]);
    }
    block += kGroups * 144;
  }
  Tile tile;
  tile.y = t.y + t.token_begin * t.y_stride;
  tile.y_stride = t.y_stride;
  tile.rows = t.rows;
  tile.first = true;
  tile.multiplier = t.multiplier;
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) tile_finish(tile, g, i, acc[g][i]);
}

// Fused<groups, tokens>::run, one to four of each.
using FusedFunction = void (*)(const LinearTask&);
constexpr int64_t kFusedTokens = 4;
template <template <int, int> class Fused>
inline FusedFunction fused_of(int64_t groups, int64_t tokens) {
  static constexpr FusedFunction kAll[4][4] = {
      {Fused<1, 1>::run, Fused<1, 2>::run, Fused<1, 3>::run, Fused<1, 4>::run},
      {Fused<2, 1>::run, Fused<2, 2>::run, Fused<2, 3>::run, Fused<2, 4>::run},
      {Fused<3, 1>::run, Fused<3, 2>::run, Fused<3, 3>::run, Fused<3, 4>::run},
      {Fused<4, 1>::run, Fused<4, 2>::run, Fused<4, 3>::run, Fused<4, 4>::run}};
  return kAll[groups - 1][tokens - 1];
}

template <class Kernel>
inline void run_linear(const LinearTask& t) {
  const int64_t chunk = t.block_k != 0 ? t.block_k : kChunk;
  for (int64_t k0 = 0; k0 < t.k_padded; k0 += chunk) {
    const int64_t k1 = smaller(k0 + chunk, t.k_padded);
    Tile tile;
    tile.w_stride = 2 * t.groups * 64;
    auto* panel = static_cast<unsigned char*>(t.panel);
    if (t.layout == Layout::kNvfp4) panel_nvfp4(t, k0, k1, panel);
    if (t.layout == Layout::kFp8) panel_fp8(t, k0, k1, panel);
    if (t.layout == Layout::kFp4Words) {
      auto* scales = reinterpret_cast<float*>(panel + kSuperRows * kChunk * 2);
      panel_words(t, k0, k1, panel, scales);
      tile.block_scales = scales;
      tile.block_stride = t.groups * kGroupRows;
    }
    if (t.layout == Layout::kNvfp4 || t.layout == Layout::kFp8 || t.layout == Layout::kFp4Words) {
      tile.w = panel;
      tile.w_stride = t.groups * 64;
    } else {
      if (t.layout != Layout::kF32) tile.w_stride = t.groups * 64;
      tile.w = t.data + k0 / 2 * tile.w_stride;
    }
    tile.n_pairs = (k1 - k0) / 2;
    tile.first = k0 == 0;
    if (t.block_k != 0) tile.scales = t.scales + k0 / chunk * t.scale_stride;
    if (k1 == t.k_padded) tile.multiplier = t.multiplier;
    tile.y_stride = t.y_stride;
    tile.rows = t.rows;
    for (int64_t token = t.token_begin; token < t.token_end;) {
      const int64_t width = tile_width(t.token_end - token);
      tile.x = static_cast<const unsigned char*>(t.x) +
               (token * t.k_padded + k0 * width) * Kernel::kInputBytes;
      tile.y = t.y + token * t.y_stride;
      run_groups<Kernel>(t, tile, width);
      token += width;
    }
  }
}

}  // namespace
}  // namespace sextant::SX_AVX512_NAMESPACE
