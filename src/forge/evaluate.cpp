// Implements evaluate.h.
#include "forge/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
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
        model_(model, options.window, chunk_, SequenceRunner::Logits::kAll, pool),
        sums_(options.window, reference != nullptr, options.n_worst) {
    if (reference != nullptr)
      reference_.emplace(*reference, options.window, chunk_, SequenceRunner::Logits::kAll, pool);
  }

  Result<EvalResult> run() {
    const auto total = static_cast<int64_t>(ids_.size());
    for (int64_t begin = 0; begin + 1 < total; begin += options_.window) {
      if (options_.max_windows > 0 && sums_.so_far().n_windows == options_.max_windows) break;
      const int64_t n = std::min(options_.window, total - begin);
      SX_TRY(run_window(begin, n));
      sums_.end_window(n);
      if (options_.progress) options_.progress(sums_.so_far().n_tokens, total);
    }
    return sums_.finish();
  }

 private:
  Status run_window(int64_t window_begin, int64_t n) {
    const auto window = ids_.subspan(static_cast<size_t>(window_begin), static_cast<size_t>(n));
    const std::vector<int64_t> steps = even_steps(n, chunk_);
    SequenceHooks hooks;
    hooks.cancel = options_.cancel;
    hooks.after = [&](int64_t begin, int64_t rows, Mat<const float> ours) -> Status {
      Mat<const float> theirs;
      if (reference_) theirs = reference_->step(window, begin, rows, rows, nullptr);
      // The last row of a window predicts what is not in it.
      const int64_t n_scored = std::min(rows, n - 1 - begin);
      const auto next =
          window.subspan(static_cast<size_t>(begin + 1), static_cast<size_t>(n_scored));
      int64_t position = window_begin + begin;
      for (const RowScore& score : score_rows(ours, theirs, next, pool_)) {
        if (!std::isfinite(score.logprob))
          return tl::unexpected(explain_window(model_, window, steps, window_begin));
        if (!std::isfinite(score.logprob_reference))
          return tl::unexpected(explain_window(*reference_, window, steps, window_begin));
        ++position;
        sums_.add(score, position, ids_[static_cast<size_t>(position)]);
      }
      return {};
    };
    SX_TRY(model_.run(window, steps, hooks));
    return {};
  }

  std::span<const int32_t> ids_;
  const EvalOptions& options_;
  ThreadPool& pool_;
  int64_t chunk_;
  SequenceRunner model_;
  std::optional<SequenceRunner> reference_;
  ScoreSums sums_;
};

}  // namespace

Status check_eval_ids(const ModelConfig& config, std::span<const int32_t> ids, int64_t window) {
  if (window < 2) return fail(Code::kUsage, "a window of {} tokens; expected at least 2", window);
  if (window > config.max_context)
    return fail(Code::kUsage, "a window of {} tokens, but the model takes {}; choose a smaller one",
                window, config.max_context);
  if (ids.size() < 2)
    return fail(Code::kInput, "{} token{} to evaluate; expected at least 2", ids.size(),
                ids.size() == 1 ? "" : "s");
  return check_ids(config, ids, "the ids");
}

Result<EvalResult> evaluate(const Model& model, const Model* reference,
                            std::span<const int32_t> ids, const EvalOptions& options,
                            ThreadPool& pool) {
  const int64_t n_vocab = model.config().n_vocab;
  SX_TRY(check_eval_ids(model.config(), ids, options.window));
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
