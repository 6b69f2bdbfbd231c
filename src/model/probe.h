// The forward pass names its tensors at fixed taps. Off (probe == nullptr), a tap costs one
// predictable branch. On, the same taps serve the NaN finder, dumps, layer comparison and
// calibration. Taps come in execution order, from the embedding on: a tap's tensor depends on
// earlier taps, on weights, and on keys and values of earlier steps, and on nothing else.
//
// "input" is visited once for every linear, with its module, right before the linear runs; so a
// calibrator that only wants inputs looks at no other name.
//
// Names in order of execution: "embed"; in each layer "attn_in", "input" of q, k, v, "q", "k", "v"
// (biases added), "q_norm", "k_norm" (Qwen3), "q_rope", "k_rope", "attn_out", "input" of o, "o",
// "mlp_in", then
//   an MLP:   "input" of gate, up, "gate", "up", "mlp_act", "input" of down, "down";
//   experts:  "input" of the router, "router" (its logits, [rows, n_experts]), "router_ids" (to
//             visit_ids) and "router_weights" (both [rows, top_k], in descending order of weight),
//             then for each expert that has rows, in ascending order, the names of an MLP with its
//             modules and its rows only, and "moe_out" (the weighted sum);
// and "hidden". Behind the layers "norm", "input" of the head, "logits".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/view.h"

namespace sextant {

struct Tap {
  std::string_view name;
  int64_t layer = -1;             // -1 outside the layers; "hidden" of layer i is dump tensor
                                  // hidden.(i + 1), "embed" is hidden.0
  std::string_view module;        // checkpoint module for inputs and outputs of linears, else empty
  std::span<const int32_t> rows;  // of the step, where only some come by (an expert's); else empty
};

class Probe {
 public:
  virtual ~Probe() = default;
  // Rows of the step in the order of its sequences; "norm" and "logits" have only the rows whose
  // logits were asked for. Names and modules live as long as the model.
  virtual void visit(const Tap& tap, Mat<const float> values) = 0;
  // What is counted, not measured: "router_ids".
  virtual void visit_ids(const Tap& /*tap*/, Mat<const int32_t> /*ids*/) {}
};

// What the model calls at a tap.
class Taps {
 public:
  explicit Taps(Probe* probe) : probe_(probe) {}
  void operator()(std::string_view name, int64_t layer, Mat<const float> values,
                  std::string_view module = {}, std::span<const int32_t> rows = {}) const {
    if (probe_ != nullptr) [[unlikely]]
      probe_->visit({name, layer, module, rows}, values);
  }
  void ids(std::string_view name, int64_t layer, Mat<const int32_t> ids) const {
    if (probe_ != nullptr) [[unlikely]]
      probe_->visit_ids({name, layer, {}, {}}, ids);
  }

 private:
  Probe* probe_;
};

}  // namespace sextant
