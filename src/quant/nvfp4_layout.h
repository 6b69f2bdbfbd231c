// The same NVFP4 bytes in other orders: the 128 x 4 and 8 x 4 scale swizzles of tensor core kernels
// and GGUF's 64-element blocks (nvfp4.md 2.6, 2.7). Codes and scales are moved, never changed.
#pragma once

#include <cstdint>

#include "base/view.h"

namespace sextant {

// The byte of scale (row, col) in a swizzled buffer for n_cols scale columns (K / 16). Rows pad to
// a multiple of 128 (or 8), columns to one of 4; the padding must be zero.
constexpr int64_t swizzle_128x4(int64_t row, int64_t col, int64_t n_cols) {
  const int64_t tile = (row / 128) * ((n_cols + 3) / 4) + col / 4;
  return tile * 512 + (row % 32) * 16 + (row / 32) % 4 * 4 + col % 4;
}
constexpr int64_t swizzle_128x4_bytes(int64_t n_rows, int64_t n_cols) {
  return (n_rows + 127) / 128 * ((n_cols + 3) / 4) * 512;
}
constexpr int64_t swizzle_8x4(int64_t row, int64_t col, int64_t n_cols) {
  return ((row / 8) * ((n_cols + 3) / 4) + col / 4) * 32 + row % 8 * 4 + col % 4;
}

// GGML_TYPE_NVFP4: 36 bytes for 64 elements: four scales, then 32 bytes of codes in which byte
// 8 i + j holds elements 16 i + j (low nibble) and 16 i + j + 8 (high). The tensor's g is stored
// apart, as a multiplier.
inline constexpr int64_t kGgufNvfp4Elements = 64;
inline constexpr int64_t kGgufNvfp4Bytes = 36;

// A matrix [n, k], k a multiple of 64: gguf is [n, k / 64 * 36]. Scales lose their sign bit on the
// way to GGUF, as in llama.cpp's converter (it reads 0x7F as zero where others read NaN: check
// scales first); codes are verbatim.
void nvfp4_to_gguf(Mat<const uint8_t> codes, Mat<const uint8_t> scales, Mat<uint8_t> gguf);
void nvfp4_from_gguf(Mat<const uint8_t> gguf, Mat<uint8_t> codes, Mat<uint8_t> scales);

}  // namespace sextant
