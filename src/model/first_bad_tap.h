// A probe that finds where numbers stop being finite: the first tap in execution order that holds a
// NaN or an infinity, so that everything it was made from was clean. Keys and values of earlier
// steps are not tapped: run it over a whole sequence from position 0, or a poisoned cache shows as
// "attn_out".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/probe.h"

namespace sextant {

class FirstBadTap : public Probe {
 public:
  struct Found {
    std::string name;
    int64_t layer = -1;
    std::string module;
    int64_t row = 0;  // row of the step
    int64_t col = 0;
    float value = 0.0F;
  };

  void visit(const Tap& tap, Mat<const float> values) override;
  const std::optional<Found>& found() const { return found_; }
  // "q of layer 3 (model.layers.3.self_attn.q_proj), row 2, column 17: nan", or empty.
  std::string describe() const;

 private:
  std::optional<Found> found_;
};

}  // namespace sextant
