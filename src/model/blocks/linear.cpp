// Implements run_linears of blocks/block.h.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/blocks/block.h"

namespace sextant {

void run_linears(const BlockContext& context, int64_t layer, Mat<const float> x,
                 std::span<const LinearCall> calls, std::span<const int32_t> rows) {
  constexpr size_t kMost = 4;
  SX_CHECK(!calls.empty() && calls.size() <= kMost, "{} linears in a call", calls.size());
  std::array<const PackedLinear*, kMost> ws{};
  std::array<Mat<float>, kMost> ys;
  for (size_t i = 0; i < calls.size(); ++i) {
    ws[i] = &calls[i].linear.packed;
    ys[i] = calls[i].y;
    context.tap("input", layer, x, calls[i].linear.module, rows);
  }
  const ActForm act = calls.front().linear.act;
  const bool together = std::all_of(calls.begin(), calls.end(),
                                    [&](const LinearCall& c) { return c.linear.act == act; });
  if (together) {
    context.ops.linear({ws.data(), calls.size()}, x, act, {ys.data(), calls.size()}, context.pool);
  } else {
    for (size_t i = 0; i < calls.size(); ++i)
      context.ops.linear({&ws[i], 1}, x, calls[i].linear.act, {&ys[i], 1}, context.pool);
  }
  for (const LinearCall& call : calls) {
    if (!call.linear.bias.empty()) context.ops.add_bias(call.y, call.linear.bias, context.pool);
    context.tap(call.tap, layer, call.y, call.linear.module, rows);
  }
}

}  // namespace sextant
