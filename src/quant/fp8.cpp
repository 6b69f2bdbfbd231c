// FP8 blocks.
#include "quant/fp8.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/checked.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

template <class A, class B>
void check_shapes(const Mat<A>& x, const Mat<B>& scales, int64_t block_n, int64_t block_k) {
  SX_CHECK(block_n > 0 && block_k > 0 && scales.rows == ceil_div(x.rows, block_n) &&
               scales.cols == ceil_div(x.cols, block_k),
           "[{}, {}] in blocks of [{}, {}] with scales [{}, {}]", x.rows, x.cols, block_n, block_k,
           scales.rows, scales.cols);
}

// f(row, first column, end column, scale) for every piece of a row under one scale.
template <class S, class F>
void each_piece(int64_t rows, int64_t cols, const Mat<S>& scales, int64_t block_n, int64_t block_k,
                F f) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t b = 0; b < scales.cols; ++b)
      f(i, b * block_k, std::min(cols, (b + 1) * block_k), scales.at(i / block_n, b));
}

}  // namespace

void fp8_dequantize(Mat<const uint8_t> codes, Mat<const float> scales, int64_t block_n,
                    int64_t block_k, Mat<float> out) {
  check_shapes(codes, scales, block_n, block_k);
  SX_CHECK(out.rows == codes.rows && out.cols == codes.cols, "out [{}, {}]", out.rows, out.cols);
  each_piece(codes.rows, codes.cols, scales, block_n, block_k,
             [&](int64_t i, int64_t begin, int64_t end, float scale) {
               for (int64_t j = begin; j < end; ++j)
                 out.at(i, j) = e4m3_decode(codes.at(i, j)) * scale;
             });
}

void fp8_quantize(Mat<const float> x, Mat<const float> scales, int64_t block_n, int64_t block_k,
                  Mat<uint8_t> codes) {
  check_shapes(x, scales, block_n, block_k);
  SX_CHECK(codes.rows == x.rows && codes.cols == x.cols, "codes [{}, {}]", codes.rows, codes.cols);
  each_piece(x.rows, x.cols, scales, block_n, block_k,
             [&](int64_t i, int64_t begin, int64_t end, float scale) {
               for (int64_t j = begin; j < end; ++j)
                 codes.at(i, j) = e4m3_encode(x.at(i, j) / scale);
             });
}

float fp8_scale(float amax) { return amax == 0.0F ? 1.0F : amax / kE4m3Max; }

void fp8_scales(Mat<const float> x, int64_t block_n, int64_t block_k, Mat<float> scales) {
  check_shapes(x, scales, block_n, block_k);
  for (int64_t bi = 0; bi < scales.rows; ++bi)
    for (int64_t bj = 0; bj < scales.cols; ++bj) {
      uint32_t amax = 0;  // magnitudes order like their bits, NaN above all
      for (int64_t i = bi * block_n; i < std::min(x.rows, (bi + 1) * block_n); ++i)
        for (int64_t j = bj * block_k; j < std::min(x.cols, (bj + 1) * block_k); ++j)
          amax = std::max(amax, std::bit_cast<uint32_t>(x.at(i, j)) & 0x7FFFFFFFU);
      scales.at(bi, bj) = fp8_scale(std::bit_cast<float>(amax));
    }
}

}  // namespace sextant
