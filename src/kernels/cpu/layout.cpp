#include "kernels/cpu/layout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "kernels/pack_source.h"

namespace sextant::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One group being filled from rows [row_begin, row_end) of the source.
struct Group {
  uint8_t* data;
  int64_t row_begin;
  int64_t row_end;
};

int fp8_slot(int64_t row) {
  constexpr int kQuarter[4] = {0, 16, 8, 24};
  return kQuarter[row / 8] + static_cast<int>(row % 8);
}

int fp4_word(int64_t half_row) {
  return static_cast<int>(half_row % 8 / 4 * 8 + half_row / 8 * 4 + half_row % 4);
}

// Elements of size bytes to [k][32] with slots; blocks of columns keep the written lines in cache.
template <class T, class Slot>
void interleave(const WeightSource& source, const Group& group, Slot slot) {
  constexpr int64_t kColumns = 64;
  auto* out = reinterpret_cast<T*>(group.data);
  for (int64_t begin = 0; begin < source.k; begin += kColumns) {
    const int64_t end = std::min(source.k, begin + kColumns);
    for (int64_t r = group.row_begin; r < group.row_end; ++r) {
      const std::byte* row = source.weight + r * source.k * static_cast<int64_t>(sizeof(T));
      T* to = out + slot(r - group.row_begin);
      for (int64_t c = begin; c < end; ++c)
        std::memcpy(to + c * kGroupRows, row + c * static_cast<int64_t>(sizeof(T)), sizeof(T));
    }
  }
}

// FP8: a NaN code becomes zero, and its row's multiplier NaN.
void fill_fp8(const WeightSource& source, const Group& group, const PackedLinear& packed) {
  float* multiplier = packed.row_multiplier.as<float>();
  interleave<uint8_t>(source, group, fp8_slot);
  for (int64_t r = group.row_begin; r < group.row_end; ++r) {
    const auto* row = reinterpret_cast<const uint8_t*>(source.weight) + r * source.k;
    bool nan = false;
    for (int64_t c = 0; c < source.k; ++c) nan |= (row[c] & 0x7FU) == 0x7FU;
    if (!nan) continue;
    multiplier[r] = kNan;
    for (int64_t c = 0; c < source.k; ++c) {
      uint8_t& code = group.data[c * kGroupRows + fp8_slot(r - group.row_begin)];
      if ((code & 0x7FU) == 0x7FU) code = 0;
    }
  }
  if (packed.scales.size() == 0) return;
  const int64_t blocks = ceil_div(source.k, source.block_k);
  auto* out = reinterpret_cast<float*>(group.data + source.k * kGroupRows);
  for (int64_t r = group.row_begin; r < group.row_end; ++r) {
    const float* row = packed.scales.as<float>() + r / source.block_n * blocks;
    for (int64_t b = 0; b < blocks; ++b) out[b * kGroupRows + r - group.row_begin] = row[b];
  }
}

// One row of FP4 codes and scales. Returns false for a NaN scale.
bool fill_fp4_row(const WeightSource& source, const Group& group, int64_t row) {
  const bool nv = source.form == WeightForm::kNvfp4;
  const int64_t n_blocks = ceil_div(source.k, int64_t{16});
  const int64_t row_bytes = source.k / 2;
  const int64_t at = row - group.row_begin;
  const auto* codes = reinterpret_cast<const uint8_t*>(source.weight) + row * row_bytes;
  const auto* scales =
      reinterpret_cast<const uint8_t*>(source.scales) + row * source_scale_cols(source);
  auto* words =
      reinterpret_cast<uint16_t*>(group.data) + at / kHalfRows * 64 + fp4_word(at % kHalfRows);
  uint8_t* out_scales = group.data + n_blocks * 256 + at;
  bool finite = true;
  for (int64_t b = 0; b < n_blocks; ++b) {
    uint64_t block = 0;
    std::memcpy(&block, codes + b * 8,
                static_cast<size_t>(std::min(int64_t{8}, row_bytes - b * 8)));
    uint8_t scale = nv ? scales[b] : scales[b / 2];
    if (nv && (scale & 0x80U) != 0) {
      scale &= 0x7FU;
      block ^= 0x8888888888888888U;
    }
    if (scale == (nv ? 0x7F : 0xFF)) {
      finite = false;
      scale = 0;
    }
    for (int64_t q = 0; q < 4; ++q)
      words[b * 128 + q * 16] = static_cast<uint16_t>(block >> (16 * q));
    out_scales[b * kGroupRows] = scale;
  }
  return finite;
}

void fill_group(const WeightSource& source, const Group& group, const PackedLinear& packed) {
  switch (source.form) {
    case WeightForm::kF32: return interleave<uint32_t>(source, group, [](int64_t r) { return r; });
    case WeightForm::kF16: return interleave<uint16_t>(source, group, [](int64_t r) { return r; });
    case WeightForm::kBf16:
      return interleave<uint16_t>(source, group,
                                  [](int64_t r) { return r / 16 * 16 + r % 8 * 2 + r / 8 % 2; });
    case WeightForm::kFp8: return fill_fp8(source, group, packed);
    case WeightForm::kNvfp4:
    case WeightForm::kMxfp4:
      for (int64_t r = group.row_begin; r < group.row_end; ++r)
        if (!fill_fp4_row(source, group, r)) packed.row_multiplier.as<float>()[r] = kNan;
      return;
  }
}

int64_t code_bytes(WeightForm form, int64_t k) {
  return weight_row_bytes(form, padded_k(form, k)) * kGroupRows;
}

}  // namespace

Kind kind_of(const PackedLinear& w) {
  switch (w.form) {
    case WeightForm::kF32: return kKindF32;
    case WeightForm::kBf16: return kKindBf16;
    case WeightForm::kF16: return kKindF16;
    case WeightForm::kFp8: return w.scales.size() == 0 ? kKindFp8 : kKindFp8Blocks;
    case WeightForm::kNvfp4: return kKindNvfp4;
    case WeightForm::kMxfp4: return kKindMxfp4;
  }
  return kKindF32;
}

int64_t padded_k(WeightForm form, int64_t k) { return fp4_block(form) != 0 ? round_up(k, 16) : k; }

int64_t group_stride(const PackedLinear& w) {
  int64_t bytes = code_bytes(w.form, w.k);
  if (fp4_block(w.form) != 0)
    bytes += padded_k(w.form, w.k) / 16 * kGroupRows;
  else if (w.scales.size() != 0)
    bytes += ceil_div(w.k, w.block_k) * kGroupRows * static_cast<int64_t>(sizeof(float));
  return round_up(bytes, 64);
}

PackedLinear pack_groups(const WeightSource& source, const char* table, ThreadPool& pool) {
  const int64_t n_groups = ceil_div(source.n, kGroupRows);
  PackedLinear packed = packed_header(source, n_groups * kGroupRows, true, table);
  const int64_t stride = group_stride(packed);
  packed.data = AlignedBuffer(n_groups * stride);
  packed.weight_bytes = packed.data.size();
  // FP8 codes and E4M3 scales reach the kernels through FP16, which has them times 2^-8.
  if (source.form == WeightForm::kFp8 || source.form == WeightForm::kNvfp4)
    for (int64_t r = 0; r < source.n; ++r) packed.row_multiplier.as<float>()[r] *= 256.0F;
  for_source_rows(source, kGroupRows, pool, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += kGroupRows) {
      uint8_t* data = packed.data.as<uint8_t>() + row / kGroupRows * stride;
      const bool ragged = end - row < kGroupRows || padded_k(source.form, source.k) != source.k;
      if (ragged && stride > 0) std::memset(data, 0, static_cast<size_t>(stride));
      fill_group(source, {data, row, std::min(end, row + kGroupRows)}, packed);
    }
  });
  return packed;
}

}  // namespace sextant::cpu
