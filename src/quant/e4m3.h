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

}  // namespace sextant
