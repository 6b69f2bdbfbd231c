// FP8 weights: E4M3 codes with a scale per tensor, per channel (row) or per block of 128 x 128
// (nvfp4.md 2.4). One form for all: scales [ceil(n / block_n), ceil(k / block_k)] in float32, each
// a multiplier ("weight_scale_inv" too) of the codes below it; edge blocks are ragged, and blocks
// count from the origin whatever n and k are.
//   per tensor: block_n = n, block_k = k     per channel: block_n = 1, block_k = k
#pragma once

#include <cstdint>

#include "base/view.h"

namespace sextant {

inline constexpr int64_t kFp8Block = 128;
inline constexpr float kE4m3Max = 448.0F;

// f32(code * scale).
void fp8_dequantize(Mat<const uint8_t> codes, Mat<const float> scales, int64_t block_n,
                    int64_t block_k, Mat<float> out);

// code = saturating E4M3 of f32(x / scale).
void fp8_quantize(Mat<const float> x, Mat<const float> scales, int64_t block_n, int64_t block_k,
                  Mat<uint8_t> codes);

// The scale of each block: f32(amax / 448), 1 for a block of zeros. NaN where the block has one.
void fp8_scales(Mat<const float> x, int64_t block_n, int64_t block_k, Mat<float> scales);
float fp8_scale(float amax);

}  // namespace sextant
