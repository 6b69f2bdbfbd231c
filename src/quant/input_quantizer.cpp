// Implements input_quantizer.h.
#include "quant/input_quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

constexpr float kInt8Range = 127.0F;
constexpr float kE4m3Range = 448.0F;

// f(block, out, n): the row in blocks of 16, filled up with zeros.
template <class F>
void each_block(std::span<const float> row, float* out, F&& f) {
  const auto k = static_cast<int64_t>(row.size());
  std::array<float, kNvfp4Block> padded;
  for (int64_t at = 0; at < k; at += kNvfp4Block) {
    const int64_t n = std::min(kNvfp4Block, k - at);
    const float* block = row.data() + at;
    if (n < kNvfp4Block) {
      padded.fill(0.0F);
      std::copy_n(block, n, padded.data());
      block = padded.data();
    }
    f(block, out + at, n);
  }
}

void nvfp4_row(const InputQuantizer& quantizer, float divisor, std::span<const float> row,
               float* out) {
  each_block(row, out, [&](const float* block, float* to, int64_t n) {
    uint8_t codes[kNvfp4Block / 2];
    uint8_t scale = 0;
    nvfp4_quantize_block(quantizer.profile, block, divisor, codes, &scale);
    const float S = e4m3_decode(scale);
    for (int64_t i = 0; i < n; ++i) to[i] = e2m1_decode(nibble(codes, i)) * S;
  });
}

void int8_row(std::span<const float> row, float* out) {
  each_block(row, out, [&](const float* block, float* to, int64_t n) {
    const float scale = amax_of(block, kNvfp4Block) / kInt8Range;
    for (int64_t i = 0; i < n; ++i)
      to[i] = scale == 0.0F ? 0.0F : std::nearbyint(block[i] / scale) * scale;
  });
}

void fp8_row(float g, std::span<const float> row, float* out) {
  for (size_t i = 0; i < row.size(); ++i) out[i] = e4m3_decode(e4m3_encode(row[i] / g));
}

// A scale that was measured from NaN must not become a number: the results of those rows are NaN.
float dynamic_multiplier(InputForm form, float amax) {
  if (std::isnan(amax)) return amax;
  if (form == InputForm::kNvfp4) return nvfp4_multiplier(amax);
  return amax > 0.0F ? amax / kE4m3Range : 1.0F;
}

}  // namespace

float input_amax(const InputQuantizer& quantizer, Mat<const float> x) {
  // NaN is the largest of the magnitudes' bits. Rounding to BF16 is monotonic.
  uint32_t largest = 0;
  for (int64_t i = 0; i < x.rows; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(amax_of(x.row(i).data(), x.cols)));
  const auto amax = std::bit_cast<float>(largest);
  return quantizer.from_bf16 ? round_to_bf16(amax) : amax;
}

void quantize_input_rows(const InputQuantizer& quantizer, Mat<const float> x, float amax,
                         Mat<float> out, std::span<float> row_multiplier, int64_t begin,
                         int64_t end) {
  SX_CHECK(quantizer.quantizes() && out.rows >= end && out.cols == x.cols && x.rows >= end &&
               static_cast<int64_t>(row_multiplier.size()) >= end,
           "x [{}, {}], out [{}, {}], {} multipliers", x.rows, x.cols, out.rows, out.cols,
           row_multiplier.size());
  for (int64_t i = begin; i < end; ++i) {
    float* const to = out.row(i).data();
    std::span<const float> row = x.row(i);
    if (quantizer.from_bf16) {
      for (size_t c = 0; c < row.size(); ++c) to[c] = round_to_bf16(row[c]);
      row = {to, row.size()};  // each element, or block, is read before it is written
    }
    float& multiplier = row_multiplier[static_cast<size_t>(i)];
    if (quantizer.form == InputForm::kInt8) {
      multiplier = 1.0F;
      int8_row(row, to);
      continue;
    }
    float divisor = quantizer.divisor;
    multiplier = quantizer.multiplier;
    if (quantizer.scale != InputScale::kStatic) {
      const float own = quantizer.scale == InputScale::kTensor ? amax : amax_of(row.data(), x.cols);
      multiplier = dynamic_multiplier(quantizer.form, own);
      divisor = nvfp4_divisor(own);
    }
    if (quantizer.form == InputForm::kFp8)
      fp8_row(multiplier, row, to);
    else
      nvfp4_row(quantizer, divisor, row, to);
  }
}

void quantize_input(const InputQuantizer& quantizer, Mat<const float> x, Mat<float> out,
                    std::span<float> row_multiplier) {
  const float amax = quantizer.scale == InputScale::kTensor ? input_amax(quantizer, x) : 0.0F;
  quantize_input_rows(quantizer, x, amax, out, row_multiplier, 0, x.rows);
}

}  // namespace sextant
