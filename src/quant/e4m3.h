// E4M3 (FN variant): sign, 4 exponent bits (bias 7), 3 mantissa bits; 0x7F and 0xFF are NaN, no
// infinity, largest 448 (nvfp4.md 1.2).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace sextant {

// By the definition: subnormal m * 2^-9, normal (8 + m) * 2^(e - 10).
constexpr float e4m3_decode_slow(uint8_t byte) {
  const uint32_t e = (byte >> 3) & 15U;
  const uint32_t m = byte & 7U;
  if (e == 15 && m == 7)
    return std::bit_cast<float>(0x7FC00000U | (static_cast<uint32_t>(byte & 0x80U) << 24));
  const float unit =
      std::bit_cast<float>(((e == 0 ? 1U : e) + 117U) << 23);  // 2^(e - 10), e at least 1
  const float magnitude = static_cast<float>(e == 0 ? m : 8 + m) * unit;
  return (byte & 0x80U) != 0 ? -magnitude : magnitude;
}
inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i)
    table[static_cast<size_t>(i)] = e4m3_decode_slow(static_cast<uint8_t>(i));
  return table;
}();
constexpr float e4m3_decode(uint8_t byte) { return kE4m3Values[byte]; }

// The two converters that exist (nvfp4.md 1.2). They differ above 464 only, where kSaturating gives
// 448 (CUDA's SATFINITE) and kNonSaturating NaN (PyTorch's cast).
enum class E4m3Overflow : uint8_t { kSaturating, kNonSaturating };

// Nearest even. NaN of either sign is 0x7F. Up to 464, halfway between 448 and what would be 480,
// the result is 448 in both modes. Subnormals: 2^14 has an ulp of 2^-9 in float32, so adding it
// rounds to the subnormal grid. Normals: example 1.0625 = 0x3F880000; the three kept mantissa bits
// are 0, the cut ones exactly half, lsb 0: adding 0x7FFFF does not carry, so 1.0 (0x38).
template <E4m3Overflow kOverflow>
constexpr uint8_t e4m3_encode_as(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 24) & 0x80U;
  const uint32_t a = u & 0x7FFFFFFFU;
  if (a > 0x7F800000U) return 0x7F;
  if (a > 0x43E80000U)  // 464
    return static_cast<uint8_t>(sign | (kOverflow == E4m3Overflow::kSaturating ? 0x7EU : 0x7FU));
  if (a < 0x3C800000U) {  // 2^-6
    const float shifted = std::bit_cast<float>(a) + 0x1p14F;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000U));
  }
  const uint32_t rounded = a + 0x7FFFFU + ((a >> 20) & 1U);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120U << 3)));
}
constexpr uint8_t e4m3_encode(float x) { return e4m3_encode_as<E4m3Overflow::kSaturating>(x); }
constexpr uint8_t e4m3_encode_nonsaturating(float x) {
  return e4m3_encode_as<E4m3Overflow::kNonSaturating>(x);
}

}  // namespace sextant
