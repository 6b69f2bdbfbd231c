// Grouped-query attention with rotary embeddings, optional biases, optional norms of q and k
// (Qwen3) and an optional sliding window. Owns the order of these steps and the writes to the
// cache.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "model/blocks/block.h"

namespace sextant {

struct Attention {
  Linear q, k, v, o;
  std::vector<float> q_norm, k_norm;  // [head_dim]; empty for none
  float norm_eps = 1e-6F;
  AttentionParams params;

  // context.at.normed() -> context.at.out().
  void run(const BlockContext& context, int64_t layer) const;
};

}  // namespace sextant
