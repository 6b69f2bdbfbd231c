// Implements blocks/mlp.h.
#include "model/blocks/mlp.h"

#include <array>

namespace sextant {

void Mlp::run(const BlockContext& context, int64_t layer) const {
  StepBuffers& at = context.at;
  const std::array<LinearCall, 2> in = {{{gate, at.gate(), "gate"}, {up, at.up(), "up"}}};
  run_linears(context, layer, at.normed(), in);
  context.ops.silu_mul(at.gate(), at.up(), at.gate(), context.pool);
  context.tap("mlp_act", layer, at.gate());
  const std::array<LinearCall, 1> out = {{{down, at.out(), "down"}}};
  run_linears(context, layer, at.gate(), out);
}

}  // namespace sextant
