// A mixture of experts (arXiv:1701.06538, 2101.03961): a router gives every row weights over the
// experts, its top_k experts each run an MLP on it, and the outputs are summed by weight. Owns the
// choice and the order of the sum.
//
// A row's result does not depend on the other rows of the call: its experts are added in ascending
// order, whoever else uses them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks/mlp.h"

namespace sextant {

// One row: softmax over all logits, the ids.size() largest in descending order (of equal ones the
// lower index first), and their shares, which normalize makes sum to 1. Logits that have no softmax
// (a NaN, an infinite maximum) choose the first experts with weights of NaN: nothing is skipped,
// and the row's output is NaN, which samplers refuse and FirstBadTap traces back to here.
void route(std::span<const float> logits, bool normalize, std::span<int32_t> ids,
           std::span<float> weights);

struct Moe {
  Linear router;
  std::vector<Mlp> experts;
  bool normalize = false;

  // x -> out, both [n_rows, d_model].
  void run(const BlockContext& context, int64_t layer, Mat<float> x, Mat<float> out) const;
};

}  // namespace sextant
