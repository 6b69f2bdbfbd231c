// Arrays of stored values to float32 and back.
#include "quant/convert.h"

#include <cstring>

#include "quant/bf16.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/ue8m0.h"

namespace sextant {
namespace {

// memcpy a value at a time: safetensors offsets are not aligned, and the compiler makes it a load.
template <class T, class F>
void each(const std::byte* in, int64_t n, float* out, F decode) {
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, in + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = decode(value);
  }
}
template <class T>
void cast(const std::byte* in, int64_t n, float* out) {
  each<T>(in, n, out, [](T value) { return static_cast<float>(value); });
}

}  // namespace

void bf16_to_f32(const uint16_t* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(in[i]);
}
void fp16_to_f32(const uint16_t* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = fp16_to_f32(in[i]);
}
void f32_to_bf16(const float* in, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = f32_to_bf16(in[i]);
}
void f32_to_fp16(const float* in, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = f32_to_fp16(in[i]);
}

bool stored_to_f32(DType dtype, const std::byte* in, int64_t n, float* out) {
  switch (dtype) {
    case DType::kF4: return false;
    case DType::kBool:
      each<uint8_t>(in, n, out, [](uint8_t v) { return v != 0 ? 1.0F : 0.0F; });
      return true;
    case DType::kU8: cast<uint8_t>(in, n, out); return true;
    case DType::kI8: cast<int8_t>(in, n, out); return true;
    case DType::kF8E4M3: each<uint8_t>(in, n, out, e4m3_decode); return true;
    case DType::kF8E5M2: each<uint8_t>(in, n, out, e5m2_decode); return true;
    case DType::kF8E8M0: each<uint8_t>(in, n, out, ue8m0_decode); return true;
    case DType::kU16: cast<uint16_t>(in, n, out); return true;
    case DType::kI16: cast<int16_t>(in, n, out); return true;
    case DType::kF16:
      each<uint16_t>(in, n, out, [](uint16_t v) { return fp16_to_f32(v); });
      return true;
    case DType::kBF16:
      each<uint16_t>(in, n, out, [](uint16_t v) { return bf16_to_f32(v); });
      return true;
    case DType::kU32: cast<uint32_t>(in, n, out); return true;
    case DType::kI32: cast<int32_t>(in, n, out); return true;
    case DType::kF32: std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float)); return true;
    case DType::kU64: cast<uint64_t>(in, n, out); return true;
    case DType::kI64: cast<int64_t>(in, n, out); return true;
    case DType::kF64: cast<double>(in, n, out); return true;
  }
  return false;
}

}  // namespace sextant
