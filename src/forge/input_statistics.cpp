// Implements input_statistics.h.
#include "forge/input_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace sextant {
namespace {

// The bits of |x| order as |x| does; without the low 18 of the 23 of the fraction they count the
// steps, 32 a binade. 1.0F is 0x3F800000, >> 18 is 127 * 32; 1.03125F, the end of its step, is
// 0x3F840000, >> 18 is 127 * 32 + 1.
constexpr int kDropped = 18;
constexpr int kExponentBias = 127;
constexpr int kFirst = (kExponentBias + MagnitudeHistogram::kLeastExponent) *
                       MagnitudeHistogram::kStepsPerBinade;  // of 2^kLeastExponent

}  // namespace

int MagnitudeHistogram::step_of(float x) {
  const int step = static_cast<int>((std::bit_cast<uint32_t>(x) & 0x7FFFFFFFU) >> kDropped);
  return std::clamp(step - kFirst + 1, 0, kSteps - 1);
}

float MagnitudeHistogram::upper_end(int step) {
  if (step >= kSteps - 1) return std::numeric_limits<float>::infinity();
  return std::bit_cast<float>(static_cast<uint32_t>(kFirst + step) << kDropped);
}

void MagnitudeHistogram::add(int step, int64_t count) {
  const auto i = static_cast<size_t>(step);
  if (i >= counts_.size()) counts_.resize(i + 1);
  counts_[i] += count;
}

double MagnitudeHistogram::percentile(double share) const {
  const int64_t n = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(n)));
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return double{upper_end(static_cast<int>(i))};
  }
  return 0;
}

InputStatistics::InputStatistics(ThreadPool& pool)
    : pool_(pool), counts_(static_cast<size_t>(pool.n_threads())) {}

// Fills rows_ and the workers' counts.
void InputStatistics::measure(Mat<const float> values) {
  rows_.resize(static_cast<size_t>(values.rows));
  for (Counts& counts : counts_) counts.fill(0);
  pool_.split(values.rows, 1, [&](int64_t begin, int64_t end, int worker) {
    Counts& counts = counts_[static_cast<size_t>(worker)];
    for (int64_t row = begin; row < end; ++row) {
      const std::span<const float> x = values.row(row);
      rows_[static_cast<size_t>(row)] = measure_row(x);
      for (const float v : x) ++counts[static_cast<size_t>(MagnitudeHistogram::step_of(v))];
    }
  });
  for (size_t worker = 1; worker < counts_.size(); ++worker)
    for (size_t i = 0; i < counts_[0].size(); ++i) counts_[0][i] += counts_[worker][i];
}

void InputStatistics::visit(const Tap& tap, Mat<const float> values) {
  if (tap.name != "input") {
    last_input_ = nullptr;
    return;
  }
  if (values.data != last_input_ || values.rows != last_rows_) measure(values);
  last_input_ = values.data;
  last_rows_ = values.rows;
  auto found = modules_.find(tap.module);
  if (found == modules_.end()) found = modules_.emplace(tap.module, Module()).first;
  Module& module = found->second;
  for (const RowStatistics& row : rows_) module.statistics.add(row, values.cols);
  for (int i = 0; i < MagnitudeHistogram::kSteps; ++i)
    if (const uint32_t n = counts_[0][static_cast<size_t>(i)]; n > 0) module.histogram.add(i, n);
  if (bad_module_.empty() && module.statistics.n_bad() > 0) bad_module_ = tap.module;
}

void InputStatistics::visit_ids(const Tap& tap, Mat<const int32_t> ids) {
  if (tap.name != "router_ids") return;
  std::vector<int64_t>& tokens = expert_tokens_[tap.layer];
  for (int64_t r = 0; r < ids.rows; ++r)
    for (const int32_t expert : ids.row(r)) {
      const auto i = static_cast<size_t>(expert);
      if (i >= tokens.size()) tokens.resize(i + 1);
      ++tokens[i];
    }
}

}  // namespace sextant
