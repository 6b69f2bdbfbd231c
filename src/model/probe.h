// The forward pass names its tensors at fixed taps. Off (probe == nullptr), a tap costs one
// predictable branch. On, the same taps serve the NaN finder, dumps, layer comparison and
// calibration. Taps come in execution order, from the embedding on: a tap's tensor depends on
// earlier taps, on weights, and on keys and values of earlier steps, and on nothing else.
//
// "input" is visited once for every linear, with its module, right before the linear runs; so a
// calibrator that only wants inputs looks at no other name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/view.h"

namespace sextant {

struct Tap {
  std::string_view name;    // "embed", "attn_in", "input", "q", "k", "v" (biases added), "q_norm",
                            // "k_norm" (Qwen3), "q_rope", "k_rope", "attn_out", "o", "mlp_in",
                            // "gate", "up", "mlp_act", "down", "hidden", "norm", "logits"
  int64_t layer = -1;       // -1 outside the layers; "hidden" of layer i is dump tensor
                            // hidden.(i + 1), "embed" is hidden.0
  std::string_view module;  // checkpoint module for inputs and outputs of linears, else empty
  // Which rows of the step these are, where they are some of them (an expert's); else empty. Valid
  // during the visit only.
  std::span<const int32_t> rows;
};

class Probe {
 public:
  virtual ~Probe() = default;
  // Rows of the step in the order of its sequences; "norm" and "logits" have only the rows whose
  // logits were asked for. Names and modules live as long as the model.
  virtual void visit(const Tap& tap, Mat<const float> values) = 0;
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

 private:
  Probe* probe_;
};

}  // namespace sextant
