// Implements blocks/moe.h.
#include "model/blocks/moe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sextant {
namespace {

// The rows that chose an expert and what its output counts for each, in ascending order of rows.
int64_t rows_of_expert(int64_t expert, StepBuffers& at) {
  const Mat<int32_t> ids = at.router_ids();
  int64_t n = 0;
  for (int64_t r = 0; r < ids.rows; ++r)
    for (int64_t j = 0; j < ids.cols; ++j)
      if (ids.at(r, j) == expert) {
        at.expert_rows()[n] = static_cast<int32_t>(r);
        at.expert_weights()[n] = at.router_weights().at(r, j);
        ++n;
      }
  return n;
}

}  // namespace

void route(std::span<const float> logits, bool normalize, std::span<int32_t> ids,
           std::span<float> weights) {
  // By the logits, not by their softmax, which can round different ones to the same number. An
  // insertion keeps equal logits in the order of their indices.
  size_t n = 0;
  bool has_nan = false;
  for (size_t e = 0; e < logits.size(); ++e) {
    has_nan = has_nan || std::isnan(logits[e]);
    if (n == ids.size() && !(logits[e] > logits[static_cast<size_t>(ids[n - 1])])) continue;
    size_t at = n < ids.size() ? n++ : n - 1;
    for (; at > 0 && logits[e] > logits[static_cast<size_t>(ids[at - 1])]; --at)
      ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
  }
  const float max = logits[static_cast<size_t>(ids[0])];
  if (has_nan || !std::isfinite(max)) {
    for (size_t j = 0; j < ids.size(); ++j) ids[j] = static_cast<int32_t>(j);
    std::fill(weights.begin(), weights.end(), std::numeric_limits<float>::quiet_NaN());
    return;
  }
  float sum = 0.0F;
  for (size_t j = 0; j < ids.size(); ++j) {
    weights[j] = std::exp(logits[static_cast<size_t>(ids[j])] - max);
    sum += weights[j];
  }
  if (!normalize) {
    sum = 0.0F;
    for (const float logit : logits) sum += std::exp(logit - max);
  }
  for (float& weight : weights) weight /= sum;
}

void Moe::run(const BlockContext& context, int64_t layer, Mat<float> x, Mat<float> out) const {
  StepBuffers& at = context.at;
  const std::array<LinearCall, 1> routed = {{{router, at.router_logits(), "router"}}};
  run_linears(context, layer, x, routed);
  for (int64_t r = 0; r < x.rows; ++r)
    route(at.router_logits().row(r), normalize, at.router_ids().row(r), at.router_weights().row(r));
  context.tap.ids("router_ids", layer, at.router_ids());
  context.tap("router_weights", layer, at.router_weights());

  for (int64_t r = 0; r < out.rows; ++r) std::fill(out.row(r).begin(), out.row(r).end(), 0.0F);
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t n = rows_of_expert(static_cast<int64_t>(e), at);
    if (n == 0) continue;
    const std::span<const int32_t> rows(at.expert_rows(), static_cast<size_t>(n));
    const Mat<float> expert_x = at.expert_x().row_range(0, n);
    const Mat<float> expert_y = at.expert_y().row_range(0, n);
    for (int64_t i = 0; i < n; ++i) {
      const std::span<const float> from = x.row(at.expert_rows()[i]);
      std::copy(from.begin(), from.end(), expert_x.row(i).begin());
    }
    experts[e].run(context, layer, expert_x, expert_y, rows);
    for (int64_t i = 0; i < n; ++i) {
      const float weight = at.expert_weights()[i];
      float* sum = out.row(at.expert_rows()[i]).data();
      for (int64_t c = 0; c < out.cols; ++c) sum[c] += weight * expert_y.at(i, c);
    }
  }
  context.tap("moe_out", layer, out);
}

}  // namespace sextant
