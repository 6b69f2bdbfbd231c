// Implements first_bad_tap.h.
#include "model/first_bad_tap.h"

#include <cmath>

#include <fmt/format.h>

namespace sextant {

void FirstBadTap::visit(const Tap& tap, Mat<const float> values) {
  if (found_) return;
  for (int64_t row = 0; row < values.rows; ++row)
    for (int64_t col = 0; col < values.cols; ++col)
      if (!std::isfinite(values.at(row, col))) {
        const int64_t step_row = tap.rows.empty() ? row : tap.rows[static_cast<size_t>(row)];
        found_ = Found{std::string(tap.name), tap.layer, std::string(tap.module), step_row, col,
                       values.at(row, col)};
        return;
      }
}

std::string FirstBadTap::describe() const {
  if (!found_) return {};
  std::string text = found_->name;
  if (found_->layer >= 0) text += fmt::format(" of layer {}", found_->layer);
  if (!found_->module.empty()) text += fmt::format(" ({})", found_->module);
  return text + fmt::format(", row {}, column {}: {}", found_->row, found_->col, found_->value);
}

}  // namespace sextant
