// Arrays of stored values to float32 and back: what every reader of plain weights does first.
// Exact where float32 holds the value; F64 and 64-bit integers round to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/dtype.h"

namespace sextant {

void bf16_to_f32(const uint16_t* in, int64_t n, float* out);
void fp16_to_f32(const uint16_t* in, int64_t n, float* out);
void f32_to_bf16(const float* in, int64_t n, uint16_t* out);
void f32_to_fp16(const float* in, int64_t n, uint16_t* out);

// n values of any dtype but F4 (whose values need their scales; false), from unaligned
// little-endian bytes. E4M3, E5M2 and E8M0 decode to their values, BOOL to 0 and 1.
[[nodiscard]] bool stored_to_f32(DType dtype, const std::byte* in, int64_t n, float* out);

}  // namespace sextant
