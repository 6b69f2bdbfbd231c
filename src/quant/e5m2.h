// E5M2: sign, 5 exponent bits, 2 mantissa bits; infinities and NaN as IEEE. It is the top byte of
// an FP16. Only read: no checkpoint dialect stores weights in it, inspection may meet it.
#pragma once

#include <cstdint>

#include "quant/bf16.h"

namespace sextant {

constexpr float e5m2_decode(uint8_t byte) {
  return fp16_to_f32(static_cast<uint16_t>(static_cast<uint16_t>(byte) << 8));
}

}  // namespace sextant
