// Implements tap_difference.h.
#include "forge/tap_difference.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "checkpoint/finding.h"

namespace sextant {
namespace {

double root_of(double part, double whole) {
  if (whole > 0) return std::sqrt(part / whole);
  return part > 0 ? std::numeric_limits<double>::infinity() : 0;
}

// Pairs of rows of two tensors that are the same row of the step. Rows ascend; a tensor without a
// list has all of them.
std::vector<std::pair<int64_t, int64_t>> common_rows(std::span<const int32_t> a, int64_t n_a,
                                                     std::span<const int32_t> b, int64_t n_b) {
  const auto row_of = [](std::span<const int32_t> rows, int64_t i) {
    return rows.empty() ? i : int64_t{rows[static_cast<size_t>(i)]};
  };
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0, j = 0; i < n_a && j < n_b;) {
    const int64_t difference = row_of(a, i) - row_of(b, j);
    if (difference == 0) pairs.emplace_back(i, j);
    if (difference <= 0) ++i;
    if (difference >= 0) ++j;
  }
  return pairs;
}

}  // namespace

void DifferenceOfRows::add(const DifferenceOfRows& later) {
  a2 += later.a2;
  b2 += later.b2;
  ab += later.ab;
  d2 += later.d2;
  n_bad_a += later.n_bad_a;
  n_bad_b += later.n_bad_b;
  n_different += later.n_different;
}

bool DifferenceOfRows::is_empty() const { return a2 == 0 && b2 == 0 && n_bad_a + n_bad_b > 0; }

double DifferenceOfRows::cosine() const {
  if (is_empty()) return NAN;
  if (a2 == 0 || b2 == 0) return a2 == b2 ? 1 : 0;
  return n_different == 0 ? 1 : ab / std::sqrt(a2 * b2);
}

double DifferenceOfRows::rms_ratio() const {
  if (is_empty()) return NAN;
  return a2 == 0 && b2 == 0 ? 1 : root_of(b2, a2);
}

double DifferenceOfRows::relative_l2() const { return is_empty() ? NAN : root_of(d2, a2); }

RowDifference compare_row(std::span<const float> a, std::span<const float> b) {
  RowDifference out;
  DifferenceOfRows& sums = out.sums;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_bad_a = !std::isfinite(a[i]);
    const bool is_bad_b = !std::isfinite(b[i]);
    const bool is_same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!is_same) {
      ++sums.n_different;
      if (out.first_different < 0) out.first_different = static_cast<int64_t>(i);
    }
    if (is_bad_a || is_bad_b) {
      if (out.first_bad < 0) out.first_bad = static_cast<int64_t>(i);
      sums.n_bad_a += is_bad_a ? 1 : 0;
      sums.n_bad_b += is_bad_b ? 1 : 0;
      continue;
    }
    const double x = a[i];
    const double y = b[i];
    sums.a2 += x * x;
    sums.b2 += y * y;
    sums.ab += x * y;
    sums.d2 += (y - x) * (y - x);
  }
  return out;
}

DifferenceOfRows compare_rows(Mat<const float> a, Mat<const float> b, ThreadPool& pool) {
  std::vector<RowDifference> rows(static_cast<size_t>(a.rows));
  pool.run(a.rows,
           [&](int64_t r, int) { rows[static_cast<size_t>(r)] = compare_row(a.row(r), b.row(r)); });
  DifferenceOfRows sums;
  for (const RowDifference& row : rows) sums.add(row.sums);
  return sums;
}

void StageComparison::begin_step(int64_t position) {
  position_ = position;
  for (auto& [key, recorded] : recorded_) recorded.n_rows = 0;
  recorded_ids_.clear();
  next_ = taps_.begin();
}

void StageComparison::KeyedProbe::visit(const Tap& tap, Mat<const float> values) {
  if (!tap.module.empty())
    expert_ = name_position(tap.module).expert.value_or(-1);
  else if (tap.name != "mlp_act")
    expert_ = -1;
  if (tap.name != "input") visit_keyed({tap.name, expert_}, tap, values);
}

void StageComparison::Recorder::visit_keyed(const Key& key, const Tap& tap,
                                            Mat<const float> values) {
  Recorded& at = owner_.recorded_[key];
  at.n_rows = values.rows;
  at.n_columns = values.cols;
  at.rows.assign(tap.rows.begin(), tap.rows.end());
  at.values.resize(static_cast<size_t>(values.rows * values.cols));
  for (int64_t r = 0; r < values.rows; ++r)
    std::copy(values.row(r).begin(), values.row(r).end(), at.values.begin() + r * values.cols);
}

void StageComparison::Recorder::visit_ids(const Tap&, Mat<const int32_t> ids) {
  for (int64_t r = 0; r < ids.rows; ++r)
    owner_.recorded_ids_.insert(owner_.recorded_ids_.end(), ids.row(r).begin(), ids.row(r).end());
}

void StageComparison::Comparer::visit_keyed(const Key& key, const Tap& tap,
                                            Mat<const float> values) {
  const auto found = owner_.recorded_.find(key);
  if (found == owner_.recorded_.end() || found->second.n_rows == 0) return;
  owner_.compare(found->second, tap, values, owner_.listed(key, tap));
}

void StageComparison::Comparer::visit_ids(const Tap&, Mat<const int32_t> ids) {
  SX_CHECK(static_cast<int64_t>(owner_.recorded_ids_.size()) == ids.rows * ids.cols,
           "{} experts chosen of {}", owner_.recorded_ids_.size(), ids.rows * ids.cols);
  for (int64_t r = 0; r < ids.rows; ++r) {
    const std::span<const int32_t> theirs = ids.row(r);
    for (int64_t j = 0; j < ids.cols; ++j) {
      const int32_t id = owner_.recorded_ids_[static_cast<size_t>(r * ids.cols + j)];
      owner_.n_same_ids_ += std::find(theirs.begin(), theirs.end(), id) != theirs.end() ? 1 : 0;
    }
  }
  owner_.n_ids_ += ids.rows * ids.cols;
}

ComparedTap& StageComparison::listed(const Key& key, const Tap& tap) {
  const auto [at, is_new] = index_.try_emplace(key, taps_.end());
  if (is_new) {
    ComparedTap fresh;
    fresh.name = tap.name;
    fresh.layer = tap.layer;
    fresh.module = tap.module;
    if (key.second >= 0) fresh.expert = key.second;
    at->second = taps_.insert(next_, std::move(fresh));
  }
  next_ = std::next(at->second);
  return *at->second;
}

void StageComparison::compare(const Recorded& recorded, const Tap& tap, Mat<const float> values,
                              ComparedTap& to) {
  SX_CHECK(recorded.n_columns == values.cols, "{} columns and {} at {}", recorded.n_columns,
           values.cols, tap.name);
  const Mat<const float> a(recorded.values.data(), recorded.n_rows, recorded.n_columns);
  const auto pairs = common_rows(recorded.rows, recorded.n_rows, tap.rows, values.rows);
  std::vector<RowDifference> rows(pairs.size());
  pool_.run(static_cast<int64_t>(pairs.size()), [&](int64_t i, int) {
    const auto at = static_cast<size_t>(i);
    rows[at] = compare_row(a.row(pairs[at].first), values.row(pairs[at].second));
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [row_a, row_b] = pairs[i];
    const auto element = [&, row_a = row_a, row_b = row_b](int64_t column) {
      const int64_t step_row =
          tap.rows.empty() ? row_b : int64_t{tap.rows[static_cast<size_t>(row_b)]};
      return TapElement{position_ + step_row, row_b, column, a.at(row_a, column),
                        values.at(row_b, column)};
    };
    to.difference.add(rows[i].sums);
    if (!to.first_different && rows[i].first_different >= 0)
      to.first_different = element(rows[i].first_different);
    if (!to.first_bad && rows[i].first_bad >= 0) to.first_bad = element(rows[i].first_bad);
  }
  to.n_rows += static_cast<int64_t>(pairs.size());
  to.n_columns = values.cols;
}

std::vector<ComparedTap> StageComparison::take() {
  std::vector<ComparedTap> out(std::make_move_iterator(taps_.begin()),
                               std::make_move_iterator(taps_.end()));
  taps_.clear();
  index_.clear();
  return out;
}

std::optional<double> StageComparison::same_experts() const {
  if (n_ids_ == 0) return std::nullopt;
  return static_cast<double>(n_same_ids_) / static_cast<double>(n_ids_);
}

}  // namespace sextant
