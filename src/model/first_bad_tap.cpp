// Implements first_bad_tap.h.
#include "model/first_bad_tap.h"

#include <fmt/format.h>

namespace sextant {

void FirstBadTap::visit(const Tap& tap, Mat<const float> values) {
  if (found_) return;
  for (int64_t row = 0; row < values.rows; ++row) {
    const RowStatistics measured = measure_row(values.row(row));
    if (measured.n_bad() == 0) continue;
    note(tap, values, row, measured.first_bad);
    return;
  }
}

void FirstBadTap::visit_measured(const Tap& tap, Mat<const float> values,
                                 std::span<const RowStatistics> rows) {
  if (found_) return;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].n_bad() == 0) continue;
    note(tap, values, static_cast<int64_t>(row), rows[row].first_bad);
    return;
  }
}

void FirstBadTap::note(const Tap& tap, Mat<const float> values, int64_t row, int64_t col) {
  found_ = Found{std::string(tap.name), tap.layer, std::string(tap.module), row, values.rows,
                 std::nullopt,          col,       values.at(row, col)};
  if (static_cast<int64_t>(tap.rows.size()) == values.rows && row < values.rows)
    found_->step_row = tap.rows[static_cast<size_t>(row)];
}

std::string FirstBadTap::describe() const {
  if (!found_) return {};
  return tap_text(found_->name, found_->layer, found_->module) +
         fmt::format(", row {}, column {}: {}", found_->row, found_->col, found_->value);
}

std::string tap_text(std::string_view name, int64_t layer, std::string_view module) {
  std::string text(name);
  if (layer >= 0) text += fmt::format(" of layer {}", layer);
  if (!module.empty()) text += fmt::format(" ({})", module);
  return text;
}

std::optional<int64_t> row_of_step(const FirstBadTap::Found& found, int64_t n_step_rows) {
  if (found.step_row) return found.step_row;
  if (found.n_rows == n_step_rows) return found.row;
  if (found.layer < 0 && found.n_rows < n_step_rows) return n_step_rows - found.n_rows + found.row;
  return std::nullopt;
}

}  // namespace sextant
