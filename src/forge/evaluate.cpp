// Implements evaluate.h.
#include "forge/evaluate.h"

#include <algorithm>
#include <cmath>

#include "forge/arg_max.h"
#include "forge/run_sequence.h"

namespace sextant {
namespace {

// Rows of logits at a time: results do not depend on it (prefill in chunks is bit for bit one
// prefill), memory does. Dynamic NTK, where they do depend, takes whole windows.
constexpr int64_t kChunk = 128;

// The window again, for what makes its logits bad.
Error explain_window(SequenceRunner& runner, std::span<const int32_t> window,
                     std::span<const int64_t> steps, int64_t window_begin) {
  const FirstBadTap bad = runner.first_bad(window, steps);
  Error error;
  error.code = Code::kModel;
  error.text = fmt::format(
      "logits are not finite in the window that begins at token {}; first bad tensor: {}",
      window_begin, bad.found() ? bad.describe() : "none (not reproduced)");
  if (bad.found()) error.where.tensor = bad.found()->module;
  return error;
}

bool takes_whole_windows(const Model* model) {
  return model != nullptr && is_one_step(model->config());
}

double log_sum_exp(std::span<const float> x) {
  const float largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(double{v} - double{largest});
  return double{largest} + std::log(sum);
}

// What one scored row contributes.
struct RowScore {
  double logprob = 0;
  double logprob_reference = 0;
  double kl = 0;
  double kl_reverse = 0;
  bool same_top1 = false;
};

RowScore score_row(std::span<const float> ours, std::span<const float> reference, int32_t next) {
  RowScore score;
  const double norm = log_sum_exp(ours);
  score.logprob = double{ours[static_cast<size_t>(next)]} - norm;
  if (reference.empty()) return score;
  const double reference_norm = log_sum_exp(reference);
  score.logprob_reference = double{reference[static_cast<size_t>(next)]} - reference_norm;
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

class Evaluation {
 public:
  Evaluation(const Model& model, const Model* reference, std::span<const int32_t> ids,
             const EvalOptions& options, ThreadPool& pool)
      : ids_(ids),
        options_(options),
        pool_(pool),
        chunk_(takes_whole_windows(&model) || takes_whole_windows(reference)
                   ? options.window
                   : std::min(options.window, kChunk)),
        model_(model, options.window, chunk_, SequenceRunner::Logits::kAll, pool) {
    if (reference != nullptr) {
      reference_.emplace(*reference, options.window, chunk_, SequenceRunner::Logits::kAll, pool);
      result_.against.emplace();
    }
    result_.window = options.window;
  }

  Result<EvalResult> run() {
    const auto total = static_cast<int64_t>(ids_.size());
    for (int64_t begin = 0; begin + 1 < total; begin += options_.window) {
      if (options_.max_windows > 0 && result_.n_windows == options_.max_windows) break;
      const int64_t n = std::min(options_.window, total - begin);
      SX_TRY(run_window(begin, n));
      result_.n_tokens += n;
      ++result_.n_windows;
      if (options_.progress) options_.progress(result_.n_tokens, total);
    }
    finish();
    return std::move(result_);
  }

 private:
  Status run_window(int64_t window_begin, int64_t n) {
    const auto window = ids_.subspan(static_cast<size_t>(window_begin), static_cast<size_t>(n));
    const std::vector<int64_t> steps = even_steps(n, chunk_);
    double nll = 0;
    double nll_reference = 0;  // summed alike, so that a model against itself gives equal bits
    SequenceHooks hooks;
    hooks.cancel = options_.cancel;
    hooks.after = [&](int64_t begin, int64_t rows, Mat<const float> ours) -> Status {
      Mat<const float> theirs;
      if (reference_) theirs = reference_->step(window, begin, rows, rows, nullptr);
      score(window, begin, ours, theirs);
      for (int64_t r = 0; r < static_cast<int64_t>(scores_.size()); ++r) {
        const RowScore& s = scores_[static_cast<size_t>(r)];
        if (!std::isfinite(s.logprob))
          return tl::unexpected(explain_window(model_, window, steps, window_begin));
        if (!std::isfinite(s.logprob_reference))
          return tl::unexpected(explain_window(*reference_, window, steps, window_begin));
        nll -= s.logprob;
        nll_reference -= s.logprob_reference;
        add(s, window_begin + begin + r + 1);
      }
      return {};
    };
    SX_TRY(model_.run(window, steps, hooks));
    result_.window_nll_sum.push_back(nll);
    if (result_.against) result_.against->nll += nll_reference;
    return {};
  }

  // The last row of a window predicts what is not in it.
  void score(std::span<const int32_t> window, int64_t begin, Mat<const float> ours,
             Mat<const float> theirs) {
    const auto n = static_cast<int64_t>(window.size());
    const int64_t rows = std::min(ours.rows, n - 1 - begin);
    scores_.assign(static_cast<size_t>(std::max<int64_t>(rows, 0)), {});
    pool_.run(rows, [&](int64_t r, int) {
      scores_[static_cast<size_t>(r)] =
          score_row(ours.row(r), theirs.data == nullptr ? std::span<const float>() : theirs.row(r),
                    window[static_cast<size_t>(begin + r + 1)]);
    });
  }

  void add(const RowScore& s, int64_t position) {
    ++result_.n_scored;
    if (!reference_) return;
    EvalAgainst& against = *result_.against;
    against.mean_kl += s.kl;
    against.mean_kl_reverse += s.kl_reverse;
    against.max_kl = std::max(against.max_kl, s.kl);
    against.top1_agreement += s.same_top1 ? 1.0 : 0.0;
    const EvalPosition here{position, ids_[static_cast<size_t>(position)], s.kl, s.logprob,
                            s.logprob_reference};
    const auto at = std::find_if(against.worst.begin(), against.worst.end(),
                                 [&](const EvalPosition& other) { return other.kl < here.kl; });
    if (at - against.worst.begin() < options_.n_worst) against.worst.insert(at, here);
    if (static_cast<int64_t>(against.worst.size()) > options_.n_worst) against.worst.pop_back();
  }

  void finish() {
    const auto n = static_cast<double>(result_.n_scored);
    double sum = 0;
    for (const double window : result_.window_nll_sum) sum += window;
    result_.nll = sum / n;
    result_.perplexity = std::exp(result_.nll);
    if (!result_.against) return;
    EvalAgainst& against = *result_.against;
    for (double* x :
         {&against.nll, &against.mean_kl, &against.mean_kl_reverse, &against.top1_agreement})
      *x /= n;
    against.perplexity = std::exp(against.nll);
  }

  std::span<const int32_t> ids_;
  const EvalOptions& options_;
  ThreadPool& pool_;
  int64_t chunk_;
  SequenceRunner model_;
  std::optional<SequenceRunner> reference_;
  std::vector<RowScore> scores_;
  EvalResult result_;
};

}  // namespace

Result<EvalResult> evaluate(const Model& model, const Model* reference,
                            std::span<const int32_t> ids, const EvalOptions& options,
                            ThreadPool& pool) {
  const int64_t n_vocab = model.config().n_vocab;
  if (options.window < 2)
    return fail(Code::kUsage, "a window of {} tokens; expected at least 2", options.window);
  if (options.window > model.config().max_context)
    return fail(Code::kUsage, "a window of {} tokens, but the model takes {}; choose a smaller one",
                options.window, model.config().max_context);
  if (ids.size() < 2)
    return fail(Code::kInput, "{} token{} to evaluate; expected at least 2", ids.size(),
                ids.size() == 1 ? "" : "s");
  SX_TRY(check_ids(model.config(), ids, "the ids"));
  if (reference != nullptr && reference->config().n_vocab != n_vocab)
    return fail(Code::kInput,
                "the model has {} tokens and the one it is compared with {}; they must share a "
                "vocabulary",
                n_vocab, reference->config().n_vocab);
  return Evaluation(model, reference, ids, options, pool).run();
}

Status check_eval_gates(const EvalResult& result, std::optional<double> max_ppl,
                        std::optional<double> max_kl) {
  if (max_kl && !result.against)
    return fail(Code::kUsage, "a bound on KL needs a model to compare with");
  // Not "above": a NaN must not pass.
  if (max_ppl && !(result.perplexity <= *max_ppl))
    return fail(Code::kGate, "perplexity {:.6g} is above the bound {:g}", result.perplexity,
                *max_ppl);
  if (max_kl && !(result.against->mean_kl <= *max_kl))
    return fail(Code::kGate, "mean KL {:.6g} is above the bound {:g} (largest {:.6g} at token {})",
                result.against->mean_kl, *max_kl, result.against->max_kl,
                result.against->worst.empty() ? -1 : result.against->worst.front().position);
  return {};
}

}  // namespace sextant
