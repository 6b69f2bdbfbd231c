// The numbers of one tapped tensor (nvfp4.md 6.2): amax and rms of what is finite, how much is not,
// and where that begins. Rows are measured one by one, so that threads may share them, and added
// up in their order: the result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

namespace sextant {

struct RowStatistics {
  float amax = 0.0F;       // of the finite elements, as the sum is
  double sum_squares = 0;  // float64
  int64_t n_nan = 0;
  int64_t n_inf = 0;
  int64_t first_bad = -1;  // column
  int64_t n_bad() const { return n_nan + n_inf; }
};
RowStatistics measure_row(std::span<const float> row);

struct TapStatistics {
  int64_t n_rows = 0;  // over all steps
  int64_t n_cols = 0;
  float amax = 0.0F;
  double sum_squares = 0;
  int64_t n_nan = 0;
  int64_t n_inf = 0;
  int64_t n_bad() const { return n_nan + n_inf; }
  double rms() const;  // of the finite elements; 0 where there are none
  void add(const RowStatistics& row, int64_t n_row_cols);
};

}  // namespace sextant
