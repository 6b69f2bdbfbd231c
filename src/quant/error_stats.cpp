// Error statistics of two arrays.
#include "quant/error_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace sextant {

void ErrorStats::add(std::span<const float> reference, std::span<const float> value) {
  SX_CHECK(reference.size() == value.size(), "{} and {} values", reference.size(), value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const double r = reference[i];
    const double v = value[i];
    const int64_t idx = n++;
    if (!std::isfinite(r) || !std::isfinite(v)) {
      if (n_nonfinite++ == 0) max_idx = idx;
      continue;
    }
    const double error = v - r;
    sum_reference2 += r * r;
    sum_value2 += v * v;
    sum_product += r * v;
    sum_error2 += error * error;
    max_reference = std::max(max_reference, std::abs(r));
    if (std::abs(error) > max_abs || (max_idx < 0 && n_nonfinite == 0)) {
      max_abs = std::abs(error);
      if (n_nonfinite == 0) max_idx = idx;
    }
  }
}

void ErrorStats::merge(const ErrorStats& later) {
  const bool moves = n_nonfinite == 0 && later.max_idx >= 0 &&
                     (later.n_nonfinite > 0 || later.max_abs > max_abs || max_idx < 0);
  if (moves) max_idx = n + later.max_idx;
  n += later.n;
  n_nonfinite += later.n_nonfinite;
  max_abs = std::max(max_abs, later.max_abs);
  max_reference = std::max(max_reference, later.max_reference);
  sum_reference2 += later.sum_reference2;
  sum_value2 += later.sum_value2;
  sum_product += later.sum_product;
  sum_error2 += later.sum_error2;
}

double ErrorStats::relative_l2() const {
  if (sum_reference2 > 0) return std::sqrt(sum_error2 / sum_reference2);
  return sum_error2 > 0 ? std::numeric_limits<double>::infinity() : 0.0;
}
double ErrorStats::cosine() const {
  if (sum_reference2 == 0 && sum_value2 == 0) return 1.0;
  if (sum_reference2 == 0 || sum_value2 == 0) return 0.0;
  return sum_product / (std::sqrt(sum_reference2) * std::sqrt(sum_value2));
}
double ErrorStats::rms_ratio() const {
  if (sum_reference2 > 0) return std::sqrt(sum_value2 / sum_reference2);
  return sum_value2 > 0 ? std::numeric_limits<double>::infinity() : 1.0;
}
double ErrorStats::rms_reference() const {
  return n > n_nonfinite ? std::sqrt(sum_reference2 / static_cast<double>(n - n_nonfinite)) : 0.0;
}
double ErrorStats::rms_error() const {
  return n > n_nonfinite ? std::sqrt(sum_error2 / static_cast<double>(n - n_nonfinite)) : 0.0;
}

ErrorStats error_stats(std::span<const float> reference, std::span<const float> value) {
  ErrorStats stats;
  stats.add(reference, value);
  return stats;
}

}  // namespace sextant
