// E2M1, the FP4 of NVFP4 and MXFP4: sign, two exponent bits (bias 1), one mantissa bit; no NaN, no
// infinity (nvfp4.md 1.1).
#pragma once

#include <cmath>
#include <cstdint>

namespace sextant {

inline constexpr float kE2m1Values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                          -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

constexpr float e2m1_decode(uint8_t code) { return kE2m1Values[code & 15]; }

// Two codes a byte along K: element 2j in the low nibble, 2j + 1 in the high one.
constexpr uint8_t nibble(const uint8_t* bytes, int64_t i) {
  return static_cast<uint8_t>((bytes[i >> 1] >> ((i & 1) * 4)) & 15);
}

}  // namespace sextant
