// Non-finite numbers in tensors that are not block scales: plain weights, norms, biases,
// embeddings, FP8 weights.
#pragma once

#include "doctor/checks/checks.h"

namespace sextant {

struct NonFinite {
  int64_t count = 0;
  int64_t first = -1;  // element
};

// Elements [begin, end) of a tensor of BF16, F16, F32 or F8; nothing for other dtypes.
NonFinite count_non_finite(const TensorRef& tensor, int64_t begin, int64_t end);
bool holds_floats(DType dtype);
// F4 for a tensor with such numbers.
void report_non_finite(CheckContext& context, const TensorRef& tensor, const NonFinite& found);

}  // namespace sextant
