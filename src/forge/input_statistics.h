// A probe that measures the inputs of linears, each module apart, and counts what routers choose.
// Looks at "input" and "router_ids" only (model/probe.h).
//
// Percentiles come from a histogram of |x| with 32 steps in each factor of two, from 2^-24 to
// 2^40: what is reported is the upper end of a step, or the largest element where that is less, so
// never below the exact percentile and at most 1/32 above it (below 2^-24: at most 2^-24).
// Counts are integers and sums are added row by row, so that nothing depends on threads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "model/probe.h"
#include "model/tap_statistics.h"

namespace sextant {

class MagnitudeHistogram {
 public:
  static constexpr int kStepsPerBinade = 32;
  static constexpr int kLeastExponent = -24;
  static constexpr int kMostExponent = 40;
  // With one for what is below 2^kLeastExponent and one for what is from 2^kMostExponent on.
  static constexpr int kSteps = (kMostExponent - kLeastExponent) * kStepsPerBinade + 2;

  static int step_of(float x);
  static float upper_end(int step);  // infinite for the last

  void add(int step, int64_t count);
  // The smallest upper end that is not below `share` of the elements (by rank, rounded up).
  double percentile(double share) const;

 private:
  std::vector<int64_t> counts_;  // up to the largest step that occurred
};

class InputStatistics : public Probe {
 public:
  struct Module {
    TapStatistics statistics;
    MagnitudeHistogram histogram;
  };

  // pool must be idle while a tap is visited.
  explicit InputStatistics(ThreadPool& pool);

  void visit(const Tap& tap, Mat<const float> values) override;
  void visit_ids(const Tap& tap, Mat<const int32_t> ids) override;

  const std::map<std::string, Module, std::less<>>& modules() const { return modules_; }
  // By layer: how often each expert was chosen, as far as the largest that was.
  const std::map<int64_t, std::vector<int64_t>>& expert_tokens() const { return expert_tokens_; }
  // Of the first module whose input held something that is not finite; empty while there is none.
  const std::string& bad_module() const { return bad_module_; }

 private:
  using Counts = std::array<uint32_t, MagnitudeHistogram::kSteps>;
  void measure(Mat<const float> values);

  ThreadPool& pool_;
  std::map<std::string, Module, std::less<>> modules_;
  std::map<int64_t, std::vector<int64_t>> expert_tokens_;
  std::string bad_module_;
  // Of the last visit. Linears that share an input are visited one after the other with the same
  // tensor, which is then measured once.
  std::vector<RowStatistics> rows_;
  std::vector<Counts> counts_;  // a worker each
  const float* last_input_ = nullptr;
  int64_t last_rows_ = 0;
};

}  // namespace sextant
