// A probe that finds where numbers stop being finite: the first tap in execution order that holds a
// NaN or an infinity, so that everything it was made from was clean. Keys and values of earlier
// steps are not tapped: run it over a whole sequence from position 0, or a poisoned cache shows as
// "attn_out". What in the checkpoint made it bad is bad_tap_cause.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/probe.h"
#include "model/tap_statistics.h"

namespace sextant {

class FirstBadTap : public Probe {
 public:
  struct Found {
    std::string name;
    int64_t layer = -1;
    std::string module;
    int64_t row = 0;                  // of the tensor
    int64_t n_rows = 0;               // rows of the tensor
    std::optional<int64_t> step_row;  // row of the step, where the tap says which (Tap::rows)
    int64_t col = 0;
    float value = 0.0F;
  };

  void visit(const Tap& tap, Mat<const float> values) override;
  // The same for a probe that has measured the rows.
  void visit_measured(const Tap& tap, Mat<const float> values, std::span<const RowStatistics> rows);
  const std::optional<Found>& found() const { return found_; }
  // "q of layer 3 (model.layers.3.self_attn.q_proj), row 2, column 17: nan", or empty.
  std::string describe() const;

 private:
  void note(const Tap& tap, Mat<const float> values, int64_t row, int64_t col);
  std::optional<Found> found_;
};

// "q of layer 3 (model.layers.3.self_attn.q_proj)".
std::string tap_text(std::string_view name, int64_t layer, std::string_view module);

// The row of a step of n_step_rows that a tensor's row is, where that can be said: what the tap
// says, else the same row, else, outside the layers, counted from the end (logits of the last n).
std::optional<int64_t> row_of_step(const FirstBadTap::Found& found, int64_t n_step_rows);

}  // namespace sextant
