// What rows of logits are worth: the log-probability of the token that came, and the distance from
// another model's logits on the same row; and their sums over windows, as an EvalResult. Whoever
// runs models decides what is scored (evaluate.h says what `eval` counts).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "base/view.h"

namespace sextant {

// What one scored row contributes.
struct RowScore {
  double logprob = 0;
  double logprob_reference = 0;
  double kl = 0;          // KL(reference || model)
  double kl_reverse = 0;  // KL(model || reference)
  bool same_top1 = false;
};

// Rows of logits in parallel, next[r] being the token that row r predicts; reference may be empty.
// Where logits are not finite, everything is NaN.
std::vector<RowScore> score_rows(Mat<const float> logits, Mat<const float> reference,
                                 std::span<const int32_t> next, ThreadPool& pool);

// One scored position: the token at `position` of the ids, predicted from those before it.
struct EvalPosition {
  int64_t position = 0;
  int32_t token = 0;
  double kl = 0;
  double logprob = 0;            // of the token, by the model
  double logprob_reference = 0;  // by the reference
};

struct EvalAgainst {
  double nll = 0;  // of the reference
  double perplexity = 0;
  double mean_kl = 0;               // KL(reference || model), mean over the scored positions
  double mean_kl_reverse = 0;       // KL(model || reference)
  double max_kl = 0;                // largest of the first kind
  double top1_agreement = 0;        // share of positions with the same most likely token
  std::vector<EvalPosition> worst;  // by kl, largest first
};

struct EvalResult {
  int64_t n_tokens = 0;  // ids that were looked at
  int64_t n_windows = 0;
  int64_t n_scored = 0;
  int64_t window = 0;
  double nll = 0;
  double perplexity = 0;
  std::vector<double> window_nll_sum;
  std::optional<EvalAgainst> against;
};

class ScoreSums {
 public:
  // n_worst: positions of the largest KL that are kept.
  ScoreSums(int64_t window, bool has_reference, int64_t n_worst);
  // The score of the token at `position` of the ids, in their order.
  void add(const RowScore& score, int64_t position, int32_t token);
  void end_window(int64_t n_tokens);
  const EvalResult& so_far() const { return result_; }
  EvalResult finish();

 private:
  int64_t n_worst_;
  double window_nll_ = 0;
  double window_nll_reference_ =
      0;  // summed alike, so that a model against itself is equal in bits
  EvalResult result_;
};

}  // namespace sextant
