// The forward pass names its tensors at fixed taps. Off (probe == nullptr), a tap costs one
// predictable branch. On, the same taps serve the NaN finder, dumps, layer comparison and
// calibration. Taps come in execution order, from the embedding on.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/view.h"

namespace sextant {

struct Tap {
  std::string_view name;  // "embed", "attn_in", "q", "k", "v", "attn_out", "o", "mlp_in", "gate",
                          // "up", "mlp_act", "down", "hidden", "norm", "logits", "input"
  int64_t layer = -1;  // -1 outside the layers; "hidden" of layer i is dump tensor hidden.(i + 1),
                       // "embed" is hidden.0
  std::string_view module;  // checkpoint module for inputs and outputs of linears, else empty
};

class Probe {
 public:
  virtual ~Probe() = default;
  virtual void visit(const Tap& tap, Mat<const float> values) = 0;
};

}  // namespace sextant
