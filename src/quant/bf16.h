// BF16 (the top 16 bits of float32) and FP16. Rounding to nearest even; NaN stays NaN
// (nvfp4.md 1.3).
#pragma once

#include <bit>
#include <cstdint>

namespace sextant {

struct Bf16 {
  uint16_t bits = 0;
};
struct Fp16 {
  uint16_t bits = 0;
};

constexpr float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
constexpr float to_f32(Bf16 x) { return bf16_to_f32(x.bits); }

// Example: 0x3F808000 (1 + 2^-8) is a tie between 0x3F80 and 0x3F81; the even one, 0x3F80, wins:
// adding 0x7FFF + (lsb 0) does not carry. 0x3F818000 ties between 0x3F81 and 0x3F82: adding 0x7FFF
// + 1 carries to 0x3F82.
constexpr uint16_t f32_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U)
    return static_cast<uint16_t>((u >> 16) | 0x40U);  // quiet NaN, the add must not carry into Inf
  return static_cast<uint16_t>((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16);
}
constexpr Bf16 to_bf16(float x) { return Bf16{f32_to_bf16(x)}; }
constexpr float round_to_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

constexpr float fp16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
  const uint32_t exponent = (h >> 10) & 0x1FU;
  const uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal or zero, exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}
constexpr float to_f32(Fp16 x) { return fp16_to_f32(x.bits); }

// Nearest even; from 65520 on (halfway between 65504 and 65536) infinity; NaN stays NaN and keeps
// its sign. Subnormals: 2^-1 has an ulp of 2^-24 in float32, so adding it rounds to FP16's
// subnormal grid, and the low bits of the sum are the FP16 bits.
constexpr uint16_t f32_to_fp16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000U;
  const uint32_t a = u & 0x7FFFFFFFU;
  if (a > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U | ((a >> 13) & 0x3FFU));
  if (a >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520
  if (a < 0x38800000U) {                                               // 2^-14
    const float shifted = std::bit_cast<float>(a) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t rounded = a + 0xFFFU + ((a >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}
constexpr Fp16 to_fp16(float x) { return Fp16{f32_to_fp16(x)}; }

}  // namespace sextant
