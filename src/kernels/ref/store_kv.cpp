// Keys or values into the cache: a copy, or rounded to BF16 (nearest even).
#include <algorithm>

#include "base/check.h"
#include "kernels/ref/ref.h"
#include "quant/bf16.h"

namespace sextant::ref {

void store_kv(std::span<const float> src, DType dtype, void* dst) {
  SX_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "cache dtype {}",
           static_cast<int>(dtype));
  if (dtype == DType::kF32)
    std::copy(src.begin(), src.end(), static_cast<float*>(dst));
  else
    std::transform(src.begin(), src.end(), static_cast<uint16_t*>(dst), f32_to_bf16);
}

}  // namespace sextant::ref
