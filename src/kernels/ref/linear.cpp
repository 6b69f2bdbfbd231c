// y[i, r] = float(multiplier[r] * sum over c of weight(r, c) * x(i, c)), the sum in float64 in the
// order of c. A weight, code times block scale, is exact in float64 (4 + 24 bits at most), and so
// is its product with a float32 activation up to one rounding at 2^-53.
#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "kernels/pack_source.h"
#include "kernels/ref/ref.h"
#include "kernels/scratch.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/ue8m0.h"

namespace sextant::ref {
namespace {

double weight_at(const PackedLinear& w, int64_t row, int64_t col) {
  const auto* bytes = w.data.as<const uint8_t>();
  const int64_t at = row * w.k + col;
  switch (w.form) {
    case WeightForm::kF32: return w.data.as<const float>()[at];
    case WeightForm::kBf16: return bf16_to_f32(w.data.as<const uint16_t>()[at]);
    case WeightForm::kF16: return fp16_to_f32(w.data.as<const uint16_t>()[at]);
    case WeightForm::kFp8: {
      const double code = e4m3_decode(bytes[at]);
      if (w.scales.size() == 0) return code;
      const int64_t scale_cols = ceil_div(w.k, w.block_k);
      const int64_t scale_at = row / w.block_n * scale_cols + col / w.block_k;
      return code * double{w.scales.as<const float>()[scale_at]};
    }
    case WeightForm::kNvfp4:
    case WeightForm::kMxfp4: {
      const int64_t scale_cols = ceil_div(w.k, w.block_k);
      const uint8_t scale = bytes[w.n * (w.k / 2) + row * scale_cols + col / w.block_k];
      const double code = e2m1_decode(nibble(bytes + row * (w.k / 2), col));
      return code * double{w.form == WeightForm::kNvfp4 ? e4m3_decode(scale) : ue8m0_decode(scale)};
    }
  }
  return 0.0;
}

// Both sides NVFP4 (ActForm::kNvfp4): a block's sum and its product with the block scale are exact
// in float32, so only the additions of blocks round, here as in every table: in order, in float32.
float sum_of_blocks(const PackedLinear& w, const double* weights, std::span<const float> x) {
  float total = 0.0F;
  for (int64_t begin = 0; begin < w.k; begin += w.block_k) {
    double block = 0.0;
    for (int64_t col = begin; col < std::min(w.k, begin + w.block_k); ++col)
      block += weights[col] * double{x[static_cast<size_t>(col)]};
    total += static_cast<float>(block);
  }
  return total;
}

void linear_rows(const PackedLinear& w, Mat<const float> x, ActForm act, Mat<float> y,
                 int64_t row_begin, int64_t row_end) {
  auto* weights = scratch<double>(Scratch::kPanel, w.k);
  const float* multiplier = w.row_multiplier.as<const float>();
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t col = 0; col < w.k; ++col) weights[col] = weight_at(w, row, col);
    for (int64_t i = 0; i < x.rows; ++i) {
      if (act == ActForm::kNvfp4 && w.form == WeightForm::kNvfp4) {
        const float total = sum_of_blocks(w, weights, x.row(i));
        y.at(i, row) = multiplier == nullptr ? total : total * multiplier[row];
        continue;
      }
      double sum = 0.0;
      for (int64_t col = 0; col < w.k; ++col) {
        const float a = act == ActForm::kBf16 ? round_to_bf16(x.at(i, col)) : x.at(i, col);
        sum += weights[col] * double{a};
      }
      if (multiplier != nullptr) sum *= double{multiplier[row]};
      y.at(i, row) = static_cast<float>(sum);
    }
  }
}

}  // namespace

void linear(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
            std::span<const Mat<float>> ys, ThreadPool& pool) {
  SX_CHECK(ws.size() == ys.size(), "{} weights, {} outputs", ws.size(), ys.size());
  for (size_t i = 0; i < ws.size(); ++i) {
    const PackedLinear& w = *ws[i];
    const Mat<float> y = ys[i];
    SX_CHECK(x.cols == w.k && y.rows == x.rows && y.cols == w.n,
             "[{}, {}] * [{}, {}]^T -> [{}, {}]", x.rows, x.cols, w.n, w.k, y.rows, y.cols);
    pool.split(w.n, 1,
               [&](int64_t begin, int64_t end, int) { linear_rows(w, x, act, y, begin, end); });
  }
}

std::string_view linear_path(WeightForm form, ActForm act) {
  if (act == ActForm::kNvfp4 && form == WeightForm::kNvfp4)
    return "exact block sums, added in float32";
  return "float64 sums, rounded once";
}

}  // namespace sextant::ref
