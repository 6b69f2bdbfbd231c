// E2M1, the FP4 of NVFP4 and MXFP4: sign, two exponent bits (bias 1), one mantissa bit; no NaN, no
// infinity (nvfp4.md 1.1).
#pragma once

#include <bit>
#include <cstdint>

namespace sextant {

inline constexpr float kE2m1Values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                          -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

constexpr float e2m1_decode(uint8_t code) { return kE2m1Values[code & 15]; }

// The code of a magnitude (the sign bit of a is not looked at): nearest, ties to the even code,
// saturating. It counts the thresholds passed; "not below" is written as a negation, so that NaN,
// for which every comparison is false, passes all seven and becomes 7, as in hardware.
// Example: 0.75 is halfway between codes 1 (0.5) and 2 (1.0); it passes 0.25 and 0.75: code 2.
constexpr uint8_t e2m1_encode_magnitude(float a) {
  return static_cast<uint8_t>(int{!(a <= 0.25F)} + int{!(a < 0.75F)} + int{!(a <= 1.25F)} +
                              int{!(a < 1.75F)} + int{!(a <= 2.5F)} + int{!(a < 3.5F)} +
                              int{!(a <= 5.0F)});
}

// As cvt.rn.satfinite.e2m1x2.f32: -0 and small negatives keep their sign bit (code 8), infinities
// and everything above 5 saturate, NaN of either sign is +6 (code 7, never 15).
constexpr uint8_t e2m1_encode(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t a = u & 0x7FFFFFFFU;
  const uint8_t sign = a > 0x7F800000U ? uint8_t{0} : static_cast<uint8_t>((u >> 28) & 8U);
  return static_cast<uint8_t>(e2m1_encode_magnitude(std::bit_cast<float>(a)) | sign);
}

// Two codes a byte along K: element 2j in the low nibble, 2j + 1 in the high one.
constexpr uint8_t nibble(const uint8_t* bytes, int64_t i) {
  return static_cast<uint8_t>((bytes[i >> 1] >> ((i & 1) * 4)) & 15);
}
constexpr uint8_t pack_nibbles(uint8_t even, uint8_t odd) {
  return static_cast<uint8_t>((even & 15) | (odd << 4));
}

}  // namespace sextant
