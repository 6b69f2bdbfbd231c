// Implements run_linears of blocks/block.h.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/blocks/block.h"

namespace sextant {
namespace {

constexpr size_t kMost = 4;
constexpr int64_t kFewRows = 8;  // up to here a fork costs more than it saves

// Linears that take their input in the same form, and so together.
struct SameInput {
  std::array<const PackedLinear*, kMost> ws{};
  std::array<Mat<float>, kMost> ys;
  size_t n = 0;
};

bool takes_alike(const Linear& a, const Linear& b) { return a.act == b.act && a.input == b.input; }

Mat<const float> quantize(const BlockContext& context, const InputQuantizer& quantizer,
                          Mat<const float> x) {
  const Mat<float> out = context.at.quantized(x.rows, x.cols);
  const std::span<float> multipliers = context.at.input_multipliers(x.rows);
  const float amax = quantizer.scale == InputScale::kTensor ? input_amax(quantizer, x) : 0.0F;
  const auto rows = [&](int64_t begin, int64_t end, int) {
    quantize_input_rows(quantizer, x, amax, out, multipliers, begin, end);
  };
  if (x.rows > kFewRows)
    context.pool.split(x.rows, 1, rows);
  else
    rows(0, x.rows, 0);
  return out;
}

void run_alike(const BlockContext& context, const Linear& first, Mat<const float> x,
               const SameInput& calls) {
  const bool quantizes = first.input.quantizes();
  const Mat<const float> in = quantizes ? quantize(context, first.input, x) : x;
  context.ops.linear({calls.ws.data(), calls.n}, in, first.act, {calls.ys.data(), calls.n},
                     context.pool);
  if (!quantizes) return;
  const std::span<const float> multipliers = context.at.input_multipliers(x.rows);
  for (size_t i = 0; i < calls.n; ++i)
    for (int64_t r = 0; r < x.rows; ++r)
      for (float& y : calls.ys[i].row(r)) y *= multipliers[static_cast<size_t>(r)];
}

}  // namespace

void run_linears(const BlockContext& context, int64_t layer, Mat<const float> x,
                 std::span<const LinearCall> calls, std::span<const int32_t> rows) {
  SX_CHECK(!calls.empty() && calls.size() <= kMost, "{} linears in a call", calls.size());
  for (const LinearCall& call : calls) context.tap("input", layer, x, call.linear.module, rows);
  std::array<bool, kMost> done{};
  for (size_t i = 0; i < calls.size(); ++i) {
    if (done[i]) continue;
    const Linear& first = calls[i].linear;
    SameInput alike;
    for (size_t j = i; j < calls.size(); ++j) {
      if (done[j] || !takes_alike(first, calls[j].linear)) continue;
      alike.ws[alike.n] = &calls[j].linear.packed;
      alike.ys[alike.n] = calls[j].y;
      ++alike.n;
      done[j] = true;
    }
    run_alike(context, first, x, alike);
  }
  for (const LinearCall& call : calls) {
    if (!call.linear.bias.empty()) context.ops.add_bias(call.y, call.linear.bias, context.pool);
    context.tap(call.tap, layer, call.y, call.linear.module, rows);
  }
}

}  // namespace sextant
