// Shared by the two linear kernels (BF16 pairs, float32): decoding packed weights into a BF16 panel
// and the walk over chunks of k, tiles of tokens and groups of rows. Per-ISA code: only intrinsics
// through avx512_vec.h, everything in an unnamed namespace.
//
// What must stay true: an output element is one chain over ascending k, whatever the tile; between
// chunks the chain rests in y as a float32, which is exact.
#pragma once

#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kLine = 64;

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// A 128-entry table in two registers.
struct Table128 {
  alignas(64) uint8_t byte[128];
};
struct Table64 {
  alignas(64) uint8_t byte[64];
};

// BF16 bits of (1 + s/8) * |E2M1 code| * 2^(8 - parity). The product has six significant bits.
// Example: code 3 (1.5), s 4 (1.5), parity 0: 2.25 * 2^8 = 1.125 * 2^9, exponent field 136,
// mantissa 0.125 * 128 = 16: 136 << 7 | 16 = 0x4410.
constexpr uint32_t nvfp4_bits(uint32_t code, uint32_t s, uint32_t parity) {
  constexpr uint32_t kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  uint32_t significand = kDoubled[code] * (8 + s);  // the value times 16
  if (significand == 0) return 0;
  uint32_t exponent = 127 + 8 - 4 - parity + 7;  // of a significand in [128, 256)
  while (significand < 128) {
    significand *= 2;
    --exponent;
  }
  return exponent << 7 | (significand & 127U);
}

// Low byte by code | s << 3 | parity << 6.
constexpr Table128 nvfp4_low_table() {
  Table128 t{};
  for (uint32_t i = 0; i < 128; ++i)
    t.byte[i] = static_cast<uint8_t>(nvfp4_bits(i & 7U, (i >> 3) & 7U, i >> 6) & 0xFFU);
  return t;
}
// High byte by nibble | parity << 4 | (s >= 3) << 5: it holds the sign and the exponent without its
// last bit; s matters only by whether 1.5 * (1 + s/8) reaches 2. Zeros have no sign, so that the
// saturating subtraction of E / 2 (in steps of two octaves) leaves them zero.
constexpr Table64 nvfp4_high_table() {
  Table64 t{};
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t bits = nvfp4_bits(i & 7U, (i & 32U) != 0 ? 3 : 0, (i >> 4) & 1U);
    t.byte[i] = static_cast<uint8_t>(bits == 0 ? 0 : bits >> 8 | (i & 8U) << 4);
  }
  return t;
}
// By s | parity << 3: the two upper bits of the high table's index; repeated in each quarter.
constexpr Table64 nvfp4_select_table() {
  Table64 t{};
  for (uint32_t i = 0; i < 64; ++i)
    t.byte[i] = static_cast<uint8_t>((i & 8U) << 1 | ((i & 7U) >= 3 ? 32U : 0U));
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

constexpr Table128 kNvfp4Low = nvfp4_low_table();
constexpr Table64 kNvfp4High = nvfp4_high_table();
constexpr Table64 kNvfp4Select = nvfp4_select_table();
constexpr Table64 kRowOfByte = row_table();
constexpr Table128 kE4m3Low = e4m3_table(0);
constexpr Table128 kE4m3High = e4m3_table(8);

struct Nvfp4Decoder {
  Bits low0 = load_b(kNvfp4Low.byte);
  Bits low1 = load_b(kNvfp4Low.byte + 64);
  Bits high = load_b(kNvfp4High.byte);
  Bits select = load_b(kNvfp4Select.byte);
  Bits rows = load_b(kRowOfByte.byte);
  Bits mask3 = set1_u8(7);
  Bits mask4 = set1_u8(15);

  struct Scale {
    Bits low_index;   // s << 3 | parity << 6, other bits undefined
    Bits high_index;  // bits 4 and 5
    Bits octaves;     // E / 2
  };
  Scale scale(const unsigned char* p) const {
    const Bits s = lookup16_u8(broadcast16_b(p), rows);
    return {shift_left_u16<3>(s), lookup16_u8(select, and_b(s, mask4)),
            and_b(shift_right_u16<4>(s), mask4)};
  }
  // The low nibbles of v: two vectors of BF16 pairs.
  void pairs(Bits v, const Scale& s, Bits* out) const {
    const Bits low = lookup128_u8(low0, low1, select_b(mask3, v, s.low_index));
    const Bits top = lookup64_u8(high, select_b(mask4, v, s.high_index));
    const Bits shifted = sub_saturated_u8(top, s.octaves);
    out[0] = interleave_low_u8(low, shifted);
    out[1] = interleave_high_u8(low, shifted);
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
  int64_t rows = 0;                   // valid rows from the first group on
  bool first = false;                 // no chain in y yet
  const float* scales = nullptr;      // the chunk is a chain of its own: y += chain * scale
  const float* multiplier = nullptr;  // set with the last chunk: y *= multiplier
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
    if (part.multiplier != nullptr) part.multiplier += g * kGroupRows;
    Kernel::tile(t.layout, n, width)(part);
    g += n;
  }
}

template <class Kernel>
inline void run_linear(const LinearTask& t) {
  const int64_t chunk = t.block_k != 0 ? t.block_k : kChunk;
  for (int64_t k0 = 0; k0 < t.k_padded; k0 += chunk) {
    const int64_t k1 = smaller(k0 + chunk, t.k_padded);
    Tile tile;
    tile.w_stride = 2 * t.groups * 64;
    if (t.layout == Layout::kNvfp4 || t.layout == Layout::kFp8) {
      auto* panel = static_cast<unsigned char*>(t.panel);
      if (t.layout == Layout::kNvfp4)
        panel_nvfp4(t, k0, k1, panel);
      else
        panel_fp8(t, k0, k1, panel);
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
