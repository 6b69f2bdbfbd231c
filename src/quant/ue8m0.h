// UE8M0: a power of two, 2^(byte - 127); 0xFF is NaN; no zero, no sign (nvfp4.md 1.3).
#pragma once

#include <bit>
#include <cstdint>

namespace sextant {

constexpr float ue8m0_decode(uint8_t byte) {
  if (byte == 0xFF) return std::bit_cast<float>(0x7FC00000U);
  if (byte == 0) return 0x1p-127F;
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

// The smallest power of two that is not below x (DeepSeek, ModelOpt, FlashInfer), saturating: zero,
// negatives and everything up to 2^-127 give 0x00, everything above 2^127 gives 0xFE, NaN 0xFF.
// The biased exponent of a float32 is already the byte; a fraction moves it up by one.
constexpr uint8_t ue8m0_encode_up(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return 0xFF;
  if (x <= 0x1p-127F) return 0;
  const uint32_t up = (u >> 23) + ((u & 0x7FFFFFU) != 0 ? 1U : 0U);
  return static_cast<uint8_t>(up > 0xFEU ? 0xFEU : up);
}

// The largest power of two that is not above x (vLLM's templated branch truncates the exponent),
// saturating as above: what lies below 2^-126 gives 0x00.
constexpr uint8_t ue8m0_encode_down(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return 0xFF;
  if (x <= 0x1p-127F) return 0;
  const uint32_t exponent = u >> 23;
  return static_cast<uint8_t>(exponent > 0xFEU ? 0xFEU : exponent);
}

}  // namespace sextant
