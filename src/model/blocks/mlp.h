// The gated feed-forward block, SwiGLU (arXiv:2002.05202): down(silu(gate(x)) * up(x)).
#pragma once

#include <cstdint>

#include "model/blocks/block.h"

namespace sextant {

struct Mlp {
  Linear gate, up, down;

  // x -> out, both [n, d_model]; the rows of the step they are, where they are not all.
  void run(const BlockContext& context, int64_t layer, Mat<float> x, Mat<float> out,
           std::span<const int32_t> rows = {}) const;
};

}  // namespace sextant
