// SwiGLU's inner part (Shazeer 2020): gate / (1 + exp(-gate)) * up.
#include <cmath>

#include "base/check.h"
#include "kernels/ref/ref.h"

namespace sextant::ref {

void silu_mul(Mat<const float> gate, Mat<const float> up, Mat<float> out, ThreadPool& pool) {
  SX_CHECK(gate.rows == up.rows && gate.cols == up.cols && gate.rows == out.rows &&
               gate.cols == out.cols,
           "gate [{}, {}], up [{}, {}], out [{}, {}]", gate.rows, gate.cols, up.rows, up.cols,
           out.rows, out.cols);
  pool.split(gate.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < gate.cols; ++j) {
        const double g = gate.at(i, j);
        out.at(i, j) = static_cast<float>(g / (1.0 + std::exp(-g)) * double{up.at(i, j)});
      }
    }
  });
}

}  // namespace sextant::ref
