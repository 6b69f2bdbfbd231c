// Implements scores.h.
#include "forge/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "forge/arg_max.h"

namespace sextant {
namespace {

double log_sum_exp(std::span<const float> x) {
  const float largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(double{v} - double{largest});
  return double{largest} + std::log(sum);
}

RowScore score_row(std::span<const float> ours, std::span<const float> reference, int32_t next) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  RowScore score;
  const double norm = log_sum_exp(ours);
  score.logprob = double{ours[static_cast<size_t>(next)]} - norm;
  if (reference.empty()) return score;
  const double reference_norm = log_sum_exp(reference);
  score.logprob_reference = double{reference[static_cast<size_t>(next)]} - reference_norm;
  if (!std::isfinite(norm) || !std::isfinite(reference_norm)) {
    score.kl = score.kl_reverse = kNan;
    return score;
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    const double a = double{ours[i]} - norm;
    const double b = double{reference[i]} - reference_norm;
    const double p = std::exp(a);
    const double q = std::exp(b);
    if (q > 0) score.kl += q * (b - a);
    if (p > 0) score.kl_reverse += p * (a - b);
  }
  // Rounding alone may leave a sum of nearly equal terms just below zero.
  score.kl = std::max(score.kl, 0.0);
  score.kl_reverse = std::max(score.kl_reverse, 0.0);
  score.same_top1 = arg_max(ours) == arg_max(reference);
  return score;
}

}  // namespace

std::vector<RowScore> score_rows(Mat<const float> logits, Mat<const float> reference,
                                 std::span<const int32_t> next, ThreadPool& pool) {
  std::vector<RowScore> scores(next.size());
  pool.run(static_cast<int64_t>(next.size()), [&](int64_t r, int) {
    const auto i = static_cast<size_t>(r);
    scores[i] =
        score_row(logits.row(r),
                  reference.data == nullptr ? std::span<const float>() : reference.row(r), next[i]);
  });
  return scores;
}

ScoreSums::ScoreSums(int64_t window, bool has_reference, int64_t n_worst) : n_worst_(n_worst) {
  result_.window = window;
  if (has_reference) result_.against.emplace();
}

void ScoreSums::add(const RowScore& score, int64_t position, int32_t token) {
  ++result_.n_scored;
  window_nll_ -= score.logprob;
  if (!result_.against) return;
  EvalAgainst& against = *result_.against;
  window_nll_reference_ -= score.logprob_reference;
  against.mean_kl += score.kl;
  against.mean_kl_reverse += score.kl_reverse;
  // A NaN stays: nothing is larger than it.
  if (!(score.kl <= against.max_kl) && !std::isnan(against.max_kl)) against.max_kl = score.kl;
  against.top1_agreement += score.same_top1 ? 1.0 : 0.0;
  const EvalPosition here{position, token, score.kl, score.logprob, score.logprob_reference};
  const auto at = std::find_if(against.worst.begin(), against.worst.end(),
                               [&](const EvalPosition& other) { return other.kl < here.kl; });
  if (at - against.worst.begin() < n_worst_) against.worst.insert(at, here);
  if (static_cast<int64_t>(against.worst.size()) > n_worst_) against.worst.pop_back();
}

void ScoreSums::end_window(int64_t n_tokens) {
  result_.n_tokens += n_tokens;
  ++result_.n_windows;
  result_.window_nll_sum.push_back(window_nll_);
  if (result_.against) result_.against->nll += window_nll_reference_;
  window_nll_ = window_nll_reference_ = 0;
}

EvalResult ScoreSums::finish() {
  const auto n = static_cast<double>(result_.n_scored);
  double sum = 0;
  for (const double window : result_.window_nll_sum) sum += window;
  result_.nll = sum / n;
  result_.perplexity = std::exp(result_.nll);
  if (result_.against) {
    EvalAgainst& against = *result_.against;
    for (double* x :
         {&against.nll, &against.mean_kl, &against.mean_kl_reverse, &against.top1_agreement})
      *x /= n;
    against.perplexity = std::exp(against.nll);
  }
  return std::move(result_);
}

}  // namespace sextant
