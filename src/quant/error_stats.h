// How far one array of numbers is from another: relative L2, cosine, rms ratio, largest difference.
// Sums in double, in order, so that a result does not depend on threads; parts are merged.
//
// Cosine is blind to scale, so it always comes with the rms ratio (nvfp4.md 6.2).
#pragma once

#include <cstdint>
#include <span>

namespace sextant {

struct ErrorStats {
  int64_t n = 0;
  int64_t n_nonfinite = 0;  // pairs with a NaN or infinity in either; left out of the sums
  int64_t max_idx = -1;     // where the largest difference (or the first non-finite pair) is
  double max_abs = 0;       // largest |value - reference|
  double max_reference = 0;
  double sum_reference2 = 0;
  double sum_value2 = 0;
  double sum_product = 0;
  double sum_error2 = 0;

  void add(std::span<const float> reference, std::span<const float> value);  // equal sizes
  void merge(const ErrorStats& later);  // of the elements that follow these

  bool finite() const { return n_nonfinite == 0; }
  double relative_l2() const;  // |value - reference| / |reference|; 0 for two zeros, else inf
  double cosine() const;       // 1 for two zero arrays, 0 where one is zero
  double rms_ratio() const;    // rms(value) / rms(reference); 1 for two zero arrays
  double rms_reference() const;
  double rms_error() const;
};

ErrorStats error_stats(std::span<const float> reference, std::span<const float> value);

}  // namespace sextant
