// Residual and bias additions: one float32 rounding each, the same in every table.
#include "base/check.h"
#include "kernels/ref/ref.h"

namespace sextant::ref {

void add(Mat<float> x, Mat<const float> y, ThreadPool& pool) {
  SX_CHECK(x.rows == y.rows && x.cols == y.cols, "[{}, {}] += [{}, {}]", x.rows, x.cols, y.rows,
           y.cols);
  pool.split(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < x.cols; ++j) x.at(i, j) += y.at(i, j);
  });
}

void add_bias(Mat<float> x, std::span<const float> bias, ThreadPool& pool) {
  SX_CHECK(static_cast<int64_t>(bias.size()) == x.cols, "[{}, {}] += bias [{}]", x.rows, x.cols,
           bias.size());
  pool.split(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < x.cols; ++j) x.at(i, j) += bias[static_cast<size_t>(j)];
  });
}

}  // namespace sextant::ref
