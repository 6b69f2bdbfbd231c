// Rows of the embedding table as float32: exact for every stored dtype.
#include <cstring>

#include "base/check.h"
#include "kernels/ref/ref.h"
#include "quant/bf16.h"

namespace sextant::ref {

void embed(const std::byte* table, DType dtype, int64_t d, std::span<const int32_t> ids,
           Mat<float> out) {
  SX_CHECK(out.rows == static_cast<int64_t>(ids.size()) && out.cols == d &&
               (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16),
           "{} ids of width {} (dtype {}) into [{}, {}]", ids.size(), d, static_cast<int>(dtype),
           out.rows, out.cols);
  const int64_t size = dtype == DType::kF32 ? 4 : 2;
  for (int64_t i = 0; i < out.rows; ++i) {
    const std::byte* row = table + ids[static_cast<size_t>(i)] * d * size;
    float* y = out.data + i * out.stride;
    if (dtype == DType::kF32) {
      if (d > 0) std::memcpy(y, row, static_cast<size_t>(d * size));
      continue;
    }
    for (int64_t j = 0; j < d; ++j) {
      uint16_t half = 0;  // the table lies in a mapped file, at any address
      std::memcpy(&half, row + j * size, sizeof half);
      y[j] = dtype == DType::kBF16 ? bf16_to_f32(half) : fp16_to_f32(half);
    }
  }
}

}  // namespace sextant::ref
