#include "kernels/pack_source.h"

#include <cstring>

#include "base/check.h"
#include "quant/bf16.h"
#include "quant/ue8m0.h"

namespace sextant {
namespace {

float scale_as_float(const std::byte* scales, DType dtype, int64_t i) {
  uint16_t half = 0;
  switch (dtype) {
    case DType::kF32: {
      float value = 0.0F;
      std::memcpy(&value, scales + i * 4, sizeof value);
      return value;
    }
    case DType::kBF16: std::memcpy(&half, scales + i * 2, sizeof half); return bf16_to_f32(half);
    case DType::kF16: std::memcpy(&half, scales + i * 2, sizeof half); return fp16_to_f32(half);
    default: return ue8m0_decode(static_cast<uint8_t>(scales[i]));
  }
}

}  // namespace

int64_t weight_row_bytes(WeightForm form, int64_t k) {
  switch (form) {
    case WeightForm::kF32: return k * 4;
    case WeightForm::kBf16:
    case WeightForm::kF16: return k * 2;
    case WeightForm::kFp8: return k;
    case WeightForm::kNvfp4:
    case WeightForm::kMxfp4: return k / 2;
  }
  return 0;
}

int64_t fp4_block(WeightForm form) {
  if (form == WeightForm::kNvfp4) return 16;
  return form == WeightForm::kMxfp4 ? 32 : 0;
}

int64_t source_scale_cols(const WeightSource& source) {
  if (const int64_t block = fp4_block(source.form)) return ceil_div(source.k, block);
  return source.form == WeightForm::kFp8 && source.scales != nullptr
             ? ceil_div(source.k, source.block_k)
             : 0;
}

void check_source(const WeightSource& source) {
  const bool fp4 = fp4_block(source.form) != 0;
  const bool empty = source.n == 0 || source.k == 0;
  SX_CHECK(source.n >= 0 && source.k >= 0 && (empty || source.weight != nullptr),
           "weights [{}, {}] without data", source.n, source.k);
  SX_CHECK(!fp4 || (source.k % 2 == 0 && (empty || source.scales != nullptr)),
           "FP4 weights [{}, {}]: odd k or no block scales", source.n, source.k);
  SX_CHECK(source.row_multiplier.empty() ||
               static_cast<int64_t>(source.row_multiplier.size()) == source.n,
           "{} row multipliers for {} rows", source.row_multiplier.size(), source.n);
  if (source.form != WeightForm::kFp8 || source.scales == nullptr) return;
  SX_CHECK(source.block_n > 0 && source.block_k > 0, "FP8 blocks of {} x {}", source.block_n,
           source.block_k);
  SX_CHECK(source.scale_dtype == DType::kF32 || source.scale_dtype == DType::kBF16 ||
               source.scale_dtype == DType::kF16 || source.scale_dtype == DType::kF8E8M0,
           "FP8 scales of dtype {}", static_cast<int>(source.scale_dtype));
}

PackedLinear packed_header(const WeightSource& source, int64_t n_padded, bool force_multipliers,
                           const char* table) {
  check_source(source);
  PackedLinear packed;
  packed.form = source.form;
  packed.n = source.n;
  packed.k = source.k;
  packed.table = table;
  if (source.form == WeightForm::kFp8 && source.scales != nullptr) {
    packed.block_n = source.block_n;
    packed.block_k = source.block_k;
    const int64_t count = ceil_div(source.n, source.block_n) * ceil_div(source.k, source.block_k);
    packed.scales = AlignedBuffer(count * static_cast<int64_t>(sizeof(float)));
    for (int64_t i = 0; i < count; ++i)
      packed.scales.as<float>()[i] = scale_as_float(source.scales, source.scale_dtype, i);
  } else {
    packed.block_k = fp4_block(source.form);
  }
  if (!source.row_multiplier.empty() || force_multipliers) {
    packed.row_multiplier = AlignedBuffer(n_padded * static_cast<int64_t>(sizeof(float)));
    for (int64_t r = 0; r < n_padded; ++r) {
      const bool given = r < source.n && !source.row_multiplier.empty();
      packed.row_multiplier.as<float>()[r] =
          given ? source.row_multiplier[static_cast<size_t>(r)] : (r < source.n ? 1.0F : 0.0F);
    }
  }
  return packed;
}

}  // namespace sextant
