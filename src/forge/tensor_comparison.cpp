// Implements tensor_comparison.h.
#include "forge/tensor_comparison.h"

#include <cmath>

namespace sextant {

TensorComparison::TensorComparison(const Dump& dump, const TensorInfo& info, double bound,
                                   std::optional<double> min_cosine)
    : dump_(dump), info_(info) {
  row_.tensor = info.name;
  row_.bound = bound;
  row_.min_cosine = min_cosine;
}

void TensorComparison::add(int64_t row, std::span<const float> ours) {
  const int64_t width = info_.shape.back();
  for (int64_t i = 0; i < width; ++i) {
    const double a = ours[static_cast<size_t>(i)];
    const double b = dump_.value(info_, row * width + i);
    const double diff = std::abs(a - b);
    const bool is_over = row_.min_cosine ? !std::isfinite(diff) : !(diff <= row_.bound);
    if (is_over && row_.first_over.empty()) row_.first_over = index_of(row, i);
    // A NaN stays: nothing is larger than it.
    if (!(diff <= row_.max_abs_diff) && !std::isnan(row_.max_abs_diff)) row_.max_abs_diff = diff;
    ours_ += a * a;
    theirs_ += b * b;
    dot_ += a * b;
  }
  row_.n_elements += width;
}

DumpRow TensorComparison::take() {
  if (theirs_ > 0 || ours_ > 0) {
    row_.cosine = dot_ / std::sqrt(ours_ * theirs_);
    row_.rms_ratio = std::sqrt(ours_ / theirs_);
  }
  row_.ok = row_.first_over.empty() && (!row_.min_cosine || row_.cosine >= *row_.min_cosine);
  return std::move(row_);
}

std::vector<int64_t> TensorComparison::index_of(int64_t row, int64_t column) const {
  if (info_.shape.size() == 2) return {row, column};
  return {row / info_.shape[1], row % info_.shape[1], column};
}

}  // namespace sextant
