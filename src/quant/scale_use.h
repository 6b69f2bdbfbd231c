// What a static activation scale does to real activations: how much of it is clipped, flushed to
// zero or left to coarse scales (nvfp4.md 4.2 and 6.2). Counts only; the bytes are those of the
// quantizers in nvfp4.h and e4m3.h.
#pragma once

#include <cstdint>
#include <span>

namespace sextant {

// Blocks are NVFP4's; an FP8 input, which has one scale for all, counts elements alone.
struct ScaleUse {
  int64_t n_elements = 0;
  int64_t n_clipped = 0;      // elements further out than rounding explains: NVFP4
                              // |x| > 6.5 * S * g, FP8 |x| > 464 * g
  int64_t n_underflowed = 0;  // not zero, but code 0 because of the scale: NVFP4 in a block of
                              // scale 0, FP8 |x| <= 2^-10 * g
  int64_t n_subnormal = 0;    // FP8: elements whose code is subnormal, 0x01 to 0x07
  int64_t n_blocks = 0;
  int64_t n_saturated_blocks = 0;  // scale byte 0x7E
  int64_t n_zero_blocks = 0;       // scale byte 0x00 over something that is not zero
  int64_t n_subnormal_blocks = 0;  // scale byte 0x01 to 0x07
  void add(const ScaleUse& other);
};

// A row of activations under the decode scale g: quantizer A with G = 1/g, as engines run it. A row
// that ends within a block is filled up with zeros, as kernels do.
ScaleUse nvfp4_scale_use(std::span<const float> row, float g);
ScaleUse fp8_scale_use(std::span<const float> row, float g);

}  // namespace sextant
