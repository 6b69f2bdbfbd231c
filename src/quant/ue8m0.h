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

}  // namespace sextant
