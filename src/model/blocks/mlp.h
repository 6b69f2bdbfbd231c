// The gated feed-forward block, SwiGLU (arXiv:2002.05202): down(silu(gate(x)) * up(x)).
#pragma once

#include <cstdint>

#include "model/blocks/block.h"

namespace sextant {

struct Mlp {
  Linear gate, up, down;

  // context.at.normed() -> context.at.out().
  void run(const BlockContext& context, int64_t layer) const;
};

}  // namespace sextant
