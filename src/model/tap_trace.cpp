// Implements tap_trace.h.
#include "model/tap_trace.h"

#include <utility>

#include "base/clock.h"
#include "checkpoint/finding.h"
#include "model/bad_tap_cause.h"
#include "quant/fp8.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

std::optional<InputUse> input_use_of(const LinearRecord* record) {
  if (record == nullptr || !record->input_scale) return std::nullopt;
  InputUse input;
  input.scale = *record->input_scale;
  input.is_nvfp4 = record->scheme == Scheme::kNvfp4;
  if (!input.is_nvfp4 && !is_fp8(record->scheme)) return std::nullopt;
  input.calibrated_amax = (input.is_nvfp4 ? kNvfp4Range : kE4m3Max) * input.scale;
  return input;
}

}  // namespace

std::optional<double> TracedTap::ratio() const {
  if (!input) return std::nullopt;
  return static_cast<double>(statistics.amax) / static_cast<double>(input->calibrated_amax);
}

void TapTrace::begin_step(int64_t pos_begin, int64_t n_rows) {
  pos_begin_ = pos_begin;
  n_step_rows_ = n_rows;
  next_ = taps_.begin();
  last_input_ = nullptr;
}

TracedTap& TapTrace::traced(const Tap& tap) {
  const auto [at, is_new] = index_.try_emplace(Key(tap.name, tap.layer, tap.module), taps_.end());
  if (is_new) {
    TracedTap fresh;
    fresh.name = tap.name;
    fresh.layer = tap.layer;
    fresh.module = tap.module;
    fresh.expert = name_position(tap.module).expert;
    if (fresh.is_input())
      fresh.input = input_use_of(find_linear_row(checkpoint_, config_, tap.module, 0).record);
    at->second = taps_.insert(next_, std::move(fresh));
  }
  next_ = std::next(at->second);
  return *at->second;
}

// Fills rows_, and uses_ for inputs with a scale.
void TapTrace::measure(const TracedTap& traced, Mat<const float> values) {
  const bool same = traced.is_input() && values.data == last_input_ &&
                    values.rows == last_input_rows_ &&
                    static_cast<int64_t>(rows_.size()) == values.rows;
  std::optional<std::pair<float, bool>> scale;
  if (traced.input) scale = {traced.input->scale, traced.input->is_nvfp4};
  const bool measure_use = scale && !(same && scale == last_scale_);
  last_input_ = traced.is_input() ? values.data : nullptr;
  last_input_rows_ = values.rows;
  last_scale_ = scale;
  if (same && !measure_use) return;
  rows_.resize(static_cast<size_t>(values.rows));
  uses_.resize(static_cast<size_t>(values.rows));
  pool_.split(values.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const std::span<const float> x = values.row(row);
      const auto i = static_cast<size_t>(row);
      if (!same) rows_[i] = measure_row(x);
      if (measure_use)
        uses_[i] =
            scale->second ? nvfp4_scale_use(x, scale->first) : fp8_scale_use(x, scale->first);
    }
  });
}

void TapTrace::visit(const Tap& tap, Mat<const float> values) {
  const int64_t start_us = now_us();
  TracedTap& at = traced(tap);
  measure(at, values);
  for (const RowStatistics& row : rows_) at.statistics.add(row, values.cols);
  if (at.input)
    for (const ScaleUse& use : uses_) at.input->use.add(use);
  if (!first_bad_.found()) {
    first_bad_.visit_measured(tap, values, rows_);
    if (first_bad_.found())
      if (const auto row = row_of_step(*first_bad_.found(), n_step_rows_))
        bad_position_ = pos_begin_ + *row;
  }
  seconds_ += seconds_since(start_us);
}

std::vector<const TracedTap*> TapTrace::dead() const {
  std::map<std::string_view, float> inputs;  // amax by module
  std::vector<const TracedTap*> out;
  for (const TracedTap& tap : taps_) {
    if (tap.module.empty()) continue;
    if (tap.is_input()) {
      inputs[tap.module] = tap.statistics.amax;
      continue;
    }
    const auto input = inputs.find(tap.module);
    if (input != inputs.end() && input->second > 0 && tap.statistics.amax == 0 && !tap.is_bad())
      out.push_back(&tap);
  }
  return out;
}

}  // namespace sextant
