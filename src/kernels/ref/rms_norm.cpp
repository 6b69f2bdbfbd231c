// Zhang & Sennrich 2019, as Llama has it: x / sqrt(mean(x^2) + eps) * weight.
#include <cmath>

#include "base/check.h"
#include "kernels/ref/ref.h"

namespace sextant::ref {

void rms_norm(Mat<const float> x, std::span<const float> weight, float eps, Mat<float> y,
              ThreadPool& pool) {
  SX_CHECK(x.rows == y.rows && x.cols == y.cols && static_cast<int64_t>(weight.size()) == x.cols,
           "[{}, {}] -> [{}, {}], weight [{}]", x.rows, x.cols, y.rows, y.cols, weight.size());
  pool.split(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      double squares = 0.0;
      for (const float value : x.row(i)) squares += double{value} * double{value};
      const double scale =
          1.0 / std::sqrt(squares / static_cast<double>(x.cols) + static_cast<double>(eps));
      for (int64_t j = 0; j < x.cols; ++j)
        y.at(i, j) =
            static_cast<float>(double{x.at(i, j)} * scale * double{weight[static_cast<size_t>(j)]});
    }
  });
}

}  // namespace sextant::ref
