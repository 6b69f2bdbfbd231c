// Su et al. 2021 in the half-split form of the Hugging Face checkpoints: dim i turns with dim
// i + rot/2.
#include "base/check.h"
#include "kernels/ref/ref.h"

namespace sextant::ref {

void rope(Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
          Mat<const float> sin, ThreadPool& pool) {
  SX_CHECK(x.cols == n_heads * head_dim && cos.rows == x.rows && sin.rows == x.rows &&
               cos.cols == sin.cols && 2 * cos.cols <= head_dim,
           "x [{}, {}], {} heads of {}, cos [{}, {}], sin [{}, {}]", x.rows, x.cols, n_heads,
           head_dim, cos.rows, cos.cols, sin.rows, sin.cols);
  const int64_t half = cos.cols;
  pool.split(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t head = 0; head < n_heads; ++head) {
        float* v = x.data + i * x.stride + head * head_dim;
        for (int64_t j = 0; j < half; ++j) {
          const double a = v[j];
          const double b = v[j + half];
          const double c = cos.at(i, j);
          const double s = sin.at(i, j);
          v[j] = static_cast<float>(a * c - b * s);
          v[j + half] = static_cast<float>(b * c + a * s);
        }
      }
    }
  });
}

}  // namespace sextant::ref
