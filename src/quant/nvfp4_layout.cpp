// GGUF blocks from and to rows of codes and scales.
#include "quant/nvfp4_layout.h"

#include "base/check.h"
#include "quant/e2m1.h"

namespace sextant {
namespace {

template <class A, class B>
void check_shapes(const Mat<A>& codes, const Mat<A>& scales, const Mat<B>& gguf) {
  const int64_t n_blocks = gguf.cols / kGgufNvfp4Bytes;
  SX_CHECK(gguf.cols % kGgufNvfp4Bytes == 0 && codes.cols == n_blocks * 32 &&
               scales.cols == n_blocks * 4 && codes.rows == gguf.rows && scales.rows == gguf.rows,
           "codes [{}, {}], scales [{}, {}], GGUF [{}, {}]", codes.rows, codes.cols, scales.rows,
           scales.cols, gguf.rows, gguf.cols);
}

}  // namespace

void nvfp4_to_gguf(Mat<const uint8_t> codes, Mat<const uint8_t> scales, Mat<uint8_t> gguf) {
  check_shapes(codes, scales, gguf);
  for (int64_t i = 0; i < gguf.rows; ++i)
    for (int64_t b = 0; b < gguf.cols / kGgufNvfp4Bytes; ++b) {
      uint8_t* out = &gguf.at(i, b * kGgufNvfp4Bytes);
      for (int64_t s = 0; s < 4; ++s) {
        const uint8_t* in = &codes.at(i, b * 32 + s * 8);
        out[s] = scales.at(i, b * 4 + s) & 0x7F;
        for (int64_t j = 0; j < 8; ++j)
          out[4 + s * 8 + j] = pack_nibbles(nibble(in, j), nibble(in, j + 8));
      }
    }
}

void nvfp4_from_gguf(Mat<const uint8_t> gguf, Mat<uint8_t> codes, Mat<uint8_t> scales) {
  check_shapes(codes, scales, gguf);
  for (int64_t i = 0; i < gguf.rows; ++i)
    for (int64_t b = 0; b < gguf.cols / kGgufNvfp4Bytes; ++b) {
      const uint8_t* in = &gguf.at(i, b * kGgufNvfp4Bytes);
      for (int64_t s = 0; s < 4; ++s) {
        uint8_t* out = &codes.at(i, b * 32 + s * 8);
        scales.at(i, b * 4 + s) = in[s];
        const uint8_t* q = in + 4 + s * 8;
        for (int64_t j = 0; j < 4; ++j) {
          out[j] = pack_nibbles(q[2 * j] & 15, q[2 * j + 1] & 15);
          out[4 + j] = pack_nibbles(q[2 * j] >> 4, q[2 * j + 1] >> 4);
        }
      }
    }
}

}  // namespace sextant
