// Implements blocks/mlp.h.
#include "model/blocks/mlp.h"

#include <array>

namespace sextant {

void Mlp::run(const BlockContext& context, int64_t layer, Mat<float> x, Mat<float> out,
              std::span<const int32_t> rows) const {
  const Mat<float> gated = context.at.gate(x.rows, gate.packed.n);
  const Mat<float> upped = context.at.up(x.rows, up.packed.n);
  const std::array<LinearCall, 2> in = {{{gate, gated, "gate"}, {up, upped, "up"}}};
  run_linears(context, layer, x, in, rows);
  context.ops.silu_mul(gated, upped, gated, context.pool);
  context.tap("mlp_act", layer, gated, {}, rows);
  const std::array<LinearCall, 1> back = {{{down, out, "down"}}};
  run_linears(context, layer, gated, back, rows);
}

}  // namespace sextant
