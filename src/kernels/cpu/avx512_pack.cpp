// Packing into the R16 layout (avx512_kernels.h says what goes where). Rows in parallel, a
// supergroup of 64 rows at a time, in blocks of k so that a supergroup's lines are written while
// they are in cache.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/cpu/avx512_driver.h"
#include "kernels/pack_source.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/ue8m0.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int kMaxOctaves = 31;  // E has five bits

// What is constant over one packing.
struct Packing {
  const WeightSource* source = nullptr;
  PackedLinear* packed = nullptr;
  Layout layout = Layout::kBf16;
  int64_t k_padded = 0;
  const AlignedBuffer* scales = nullptr;  // FP8, [row block, k block]
};

// The supergroup at hand: where it goes, and for MXFP4 the largest exponent byte of each row.
struct Super {
  unsigned char* data = nullptr;
  int64_t groups = 0;
  int last_octave[kSuperRows] = {};
};

// The scale byte E << 3 | s of an E4M3 magnitude, see avx512_kernels.h. Example: 0x05, 5 * 2^-9 =
// 1.25 * 2^-7: E = 15, s = 2.
constexpr uint8_t encode_e4m3_scale(uint8_t magnitude) {
  int exponent = (magnitude >> 3) - 7;
  int significand = magnitude & 7;
  if (magnitude >> 3 == 0) {
    if (significand == 0) return 0;
    exponent = -6;
    while (significand < 8) {
      significand *= 2;
      --exponent;
    }
  }
  return static_cast<uint8_t>((8 - exponent) << 3 | (significand & 7));
}

// Nibble i of the result's byte j: code j (low) and code j + 4 (high) of eight codes in file order.
constexpr uint32_t pair_up_nibbles(uint32_t codes) {
  const auto spread = [](uint32_t four) {
    const uint32_t two = (four | four << 8) & 0x00FF00FFU;
    return (two | two << 4) & 0x0F0F0F0FU;
  };
  return spread(codes & 0xFFFFU) | spread(codes >> 16) << 4;
}

// Eight codes in file order as a word of kFp4Words: even k in the lower half, odd k in the upper.
constexpr uint32_t split_nibbles(uint32_t codes) {
  const auto gather = [](uint32_t even) {
    const uint32_t bytes = even & 0x0F0F0F0FU;
    const uint32_t two = (bytes | bytes >> 4) & 0x00FF00FFU;
    return (two | two >> 8) & 0xFFFFU;
  };
  return gather(codes) | gather(codes >> 4) << 16;
}

// Bytes 0, 1 and 2, 3 of `four` to where row `row` of a group has them in a 64-byte vector.
void store_interleaved(unsigned char* vector, int64_t row, uint32_t four) {
  unsigned char* at = vector + row / 4 * 16 + row % 4 * 2;
  const auto low = static_cast<uint16_t>(four);
  const auto high = static_cast<uint16_t>(four >> 16);
  std::memcpy(at, &low, 2);
  std::memcpy(at + 8, &high, 2);
}

// Up to `want` bytes of a row from byte `at` on, zeros beyond its end.
void load_row(const std::byte* row, int64_t row_bytes, int64_t at, int64_t want, void* out) {
  const int64_t n = std::clamp<int64_t>(row_bytes - at, 0, want);
  if (n < want) std::memset(out, 0, static_cast<size_t>(want));
  if (n > 0) std::memcpy(out, row + at, static_cast<size_t>(n));
}

// Smallest and largest UE8M0 exponent byte among a row's blocks that have a nonzero code; first >
// last without any. A NaN scale is no exponent.
struct Octaves {
  int first = 256;
  int last = -1;
};
Octaves row_octaves(const WeightSource& source, int64_t row) {
  Octaves range;
  const int64_t row_bytes = source.k / 2;
  const int64_t blocks = ceil_div(source.k, 32);
  for (int64_t b = 0; b < blocks; ++b) {
    const int e = static_cast<int>(source.scales[row * blocks + b]);
    if (e == 0xFF || (e >= range.first && e <= range.last)) continue;
    uint64_t codes[2];
    load_row(source.weight + row * row_bytes, row_bytes, b * 16, 16, codes);
    if (((codes[0] | codes[1]) & 0x7777777777777777U) == 0) continue;
    range.first = std::min(range.first, e);
    range.last = std::max(range.last, e);
  }
  return range;
}

// Block of 16 codes and its scale byte, ready for the layout; multiplies `multiplier` by NaN where
// the scale is NaN.
struct Fp4Block {
  uint64_t codes = 0;
  uint8_t scale = 0;
};
Fp4Block fp4_block_of(const WeightSource& source, int64_t row, int64_t block, int last_octave,
                      float& multiplier) {
  Fp4Block out;
  const int64_t row_bytes = source.k / 2;
  load_row(source.weight + row * row_bytes, row_bytes, block * 8, 8, &out.codes);
  const bool nvfp4 = source.form == WeightForm::kNvfp4;
  const int64_t scale_cols = source_scale_cols(source);
  const auto scale =
      static_cast<uint8_t>(source.scales[row * scale_cols + (nvfp4 ? block : block / 2)]);
  if (nvfp4) {
    if ((scale & 0x7F) == 0x7F) multiplier = kNaN;
    if ((scale & 0x80) != 0) out.codes ^= 0x8888888888888888U;
    if ((scale & 0x7F) == 0) out.codes = 0;
    out.scale = encode_e4m3_scale(scale & 0x7F);
    return out;
  }
  if (scale == 0xFF) multiplier = kNaN;
  const bool zero = (out.codes & 0x7777777777777777U) == 0 || scale == 0xFF;
  if (zero) out.codes = 0;
  out.scale = zero ? uint8_t{0} : static_cast<uint8_t>((last_octave - scale) << 3);
  return out;
}

void pack_fp4(const Packing& p, const Super& super, int64_t row, int64_t from, int64_t to) {
  float& multiplier = p.packed->row_multiplier.as<float>()[row];
  const int64_t groups = super.groups;
  const int64_t r = row % kSuperRows;
  const int64_t g = r / kGroupRows;
  for (int64_t b = from / 16; b < to / 16; ++b) {
    const Fp4Block block = b * 16 < p.source->k
                               ? fp4_block_of(*p.source, row, b, super.last_octave[r], multiplier)
                               : Fp4Block{};
    unsigned char* at = super.data + b * groups * 144;
    unsigned char* vectors = at + groups * 16 + g * 128;
    if (p.layout == Layout::kFp4Words) {
      at[r] = block.scale ^ 0xF8U;
      for (int half = 0; half < 2; ++half) {
        const uint32_t word = split_nibbles(static_cast<uint32_t>(block.codes >> 32 * half));
        std::memcpy(vectors + half * 64 + r % kGroupRows * 4, &word, 4);
      }
      continue;
    }
    at[r] = block.scale;
    store_interleaved(vectors, r % kGroupRows, pair_up_nibbles(static_cast<uint32_t>(block.codes)));
    store_interleaved(vectors + 64, r % kGroupRows,
                      pair_up_nibbles(static_cast<uint32_t>(block.codes >> 32)));
  }
}

// Elements of 1, 2 or 4 bytes that keep their bits: FP8, BF16, F16, F32.
void pack_plain(const Packing& p, const Super& super, int64_t row, int64_t from, int64_t to) {
  const int64_t groups = super.groups;
  const int64_t r = row % kSuperRows;
  const int64_t g = r / kGroupRows;
  const int64_t lane = r % kGroupRows;
  const int64_t row_bytes = weight_row_bytes(p.source->form, p.source->k);
  const std::byte* source = p.source->weight + row * row_bytes;
  const int64_t step = p.layout == Layout::kFp8 ? 4 : p.layout == Layout::kF32 ? 1 : 2;
  for (int64_t c = from; c < to; c += step) {
    uint32_t word = 0;  // four codes, two halves or one float
    load_row(source, row_bytes, c * 4 / step, 4, &word);
    if (p.layout == Layout::kFp8) {
      store_interleaved(super.data + (c / 16 * groups + g) * 256 + c % 16 / 4 * 64, lane, word);
    } else if (p.layout == Layout::kF16) {
      unsigned char* at = super.data + (c * groups + g) * 32 + lane * 2;
      const auto low = static_cast<uint16_t>(word);
      const auto high = static_cast<uint16_t>(word >> 16);
      std::memcpy(at, &low, 2);
      std::memcpy(at + groups * 32, &high, 2);
    } else {
      std::memcpy(super.data + (c / step * groups + g) * 64 + lane * 4, &word, 4);
    }
  }
}

// The forms that fell back to float32. MXFP4: code * 2^(e - last), last in the multiplier, so that
// no scale overflows; FP8: code * scale rounded once.
void pack_dequantized(const Packing& p, const Super& super, int64_t row, int64_t from, int64_t to) {
  const int64_t groups = super.groups;
  const WeightSource& s = *p.source;
  const auto* codes = reinterpret_cast<const uint8_t*>(s.weight);
  const int64_t r = row % kSuperRows;
  float& multiplier = p.packed->row_multiplier.as<float>()[row];
  const bool mxfp4 = s.form == WeightForm::kMxfp4;
  const int64_t scale_cols = source_scale_cols(s);
  for (int64_t c = from; c < std::min(to, s.k); ++c) {
    float value = 0.0F;
    if (mxfp4) {
      const auto e = static_cast<uint8_t>(s.scales[row * scale_cols + c / 32]);
      if (e == 0xFF) multiplier = kNaN;
      value = std::ldexp(e2m1_decode(nibble(codes + row * (s.k / 2), c)), e - super.last_octave[r]);
    } else {
      const double scale =
          p.scales->as<const float>()[row / s.block_n * scale_cols + c / s.block_k];
      value = static_cast<float>(double{e4m3_decode(codes[row * s.k + c])} * scale);
    }
    std::memcpy(super.data + (c * groups + r / kGroupRows) * 64 + r % kGroupRows * 4, &value, 4);
  }
}

int64_t super_bytes(Layout layout, int64_t groups, int64_t k_padded) {
  switch (layout) {
    case Layout::kNvfp4:
    case Layout::kFp4Words: return groups * k_padded / 16 * 144;
    case Layout::kFp8: return groups * k_padded * 16;
    case Layout::kBf16:
    case Layout::kF16: return groups * k_padded * 32;
    case Layout::kF32: return groups * k_padded * 64;
  }
  return 0;
}

bool is_fp4(Layout layout) { return layout == Layout::kNvfp4 || layout == Layout::kFp4Words; }

Layout plain_layout(WeightForm form, Bf16Unit unit) {
  switch (form) {
    case WeightForm::kF32: return Layout::kF32;
    case WeightForm::kBf16: return Layout::kBf16;
    case WeightForm::kF16: return Layout::kF16;
    case WeightForm::kFp8: return Layout::kFp8;
    default: return unit == Bf16Unit::kTiles ? Layout::kNvfp4 : Layout::kFp4Words;
  }
}

Layout choose_layout(const WeightSource& source, ThreadPool& pool, Bf16Unit unit) {
  if (source.form == WeightForm::kFp8 && source.scales != nullptr && source.block_k < source.k &&
      source.block_k % 16 != 0)
    return Layout::kF32;
  if (source.form != WeightForm::kMxfp4) return plain_layout(source.form, unit);
  std::atomic<bool> wide{false};
  pool.split(source.n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const Octaves range = row_octaves(source, row);
      if (range.last - range.first > kMaxOctaves) wide.store(true, std::memory_order_relaxed);
    }
  });
  return wide.load() ? Layout::kF32 : plain_layout(source.form, unit);
}

// FP8 scales, [row block, k block] in the header: one k block goes into the row multipliers; else a
// row of n_padded for each chain. A chain is the longest part of a block that is a multiple of 16,
// divides it and fits the panel.
void place_fp8_scales(const WeightSource& source, const AlignedBuffer& given, PackedLinear& out) {
  const int64_t cols = source_scale_cols(source);
  const int64_t n_padded = round_up(source.n, kGroupRows);
  const auto* scales = given.as<const float>();
  out.block_k = 0;
  if (cols <= 1) {
    for (int64_t row = 0; row < source.n && cols == 1; ++row)
      out.row_multiplier.as<float>()[row] *= scales[row / source.block_n];
    return;
  }
  int64_t chain = std::min(source.block_k, kMaxBlock);
  while (source.block_k % chain != 0 || chain % 16 != 0) --chain;
  const int64_t n_chains = ceil_div(source.k, chain);
  out.block_k = chain;
  out.scales = AlignedBuffer(n_chains * n_padded * static_cast<int64_t>(sizeof(float)));
  for (int64_t i = 0; i < n_chains; ++i)
    for (int64_t row = 0; row < n_padded; ++row)
      out.scales.as<float>()[i * n_padded + row] =
          row < source.n ? scales[row / source.block_n * cols + i * chain / source.block_k] : 0.0F;
}

// MXFP4 rows are stored relative to their largest exponent, which goes into the multiplier: the
// float32 form as code * 2^(e - last), the R16 form as code * 2^(8 - E) with E = last - e.
void take_octaves(const Packing& p, Super& super, int64_t row0, int64_t rows) {
  const int bias = is_fp4(p.layout) ? 135 : 127;
  for (int64_t r = 0; r < rows; ++r) {
    const int last = row_octaves(*p.source, row0 + r).last;
    if (last < 0) continue;  // nothing but zeros
    super.last_octave[r] = last;
    float& multiplier = p.packed->row_multiplier.as<float>()[row0 + r];
    multiplier = std::ldexp(multiplier, last - bias);
  }
}

void pack_super(const Packing& p, int64_t row0) {
  constexpr int64_t kStep = 128;
  const WeightSource& source = *p.source;
  const int64_t rows = std::min(kSuperRows, source.n - row0);
  Super super;
  super.groups = ceil_div(rows, kGroupRows);
  super.data =
      p.packed->data.as<unsigned char>() + super_bytes(p.layout, row0 / kGroupRows, p.k_padded);
  std::memset(super.data, 0, static_cast<size_t>(super_bytes(p.layout, super.groups, p.k_padded)));
  if (source.form == WeightForm::kMxfp4) take_octaves(p, super, row0, rows);
  const bool dequantized = p.layout == Layout::kF32 && source.form != WeightForm::kF32;
  for (int64_t from = 0; from < p.k_padded; from += kStep) {
    const int64_t to = std::min(from + kStep, p.k_padded);
    for (int64_t row = row0; row < row0 + rows; ++row) {
      if (is_fp4(p.layout))
        pack_fp4(p, super, row, from, to);
      else if (dequantized)
        pack_dequantized(p, super, row, from, to);
      else
        pack_plain(p, super, row, from, to);
    }
  }
}

}  // namespace

PackedLinear pack_r16(const WeightSource& source, ThreadPool& pool, const char* table,
                      Bf16Unit unit) {
  const int64_t n_padded = round_up(source.n, kGroupRows);
  PackedLinear packed = packed_header(source, n_padded, true, table);
  const Layout layout = choose_layout(source, pool, unit);
  const AlignedBuffer given_scales = std::move(packed.scales);
  packed.scales = AlignedBuffer();
  packed.layout = static_cast<int32_t>(layout);
  if (source.form == WeightForm::kFp8 && layout == Layout::kFp8)
    place_fp8_scales(source, given_scales, packed);
  const Packing p{&source, &packed, layout, std::max<int64_t>(round_up(source.k, 16), 16),
                  &given_scales};
  packed.data = AlignedBuffer(super_bytes(layout, n_padded / kGroupRows, p.k_padded));
  packed.weight_bytes = packed.data.size() + packed.scales.size() + packed.row_multiplier.size();
  for_source_rows(source, kSuperRows, pool, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += kSuperRows) pack_super(p, row);
  });
  return packed;
}

}  // namespace sextant::SX_AVX512_NAMESPACE
