// Perplexity of a model on token ids, and its distance from another model on the same ids. Owns
// what is counted, as `eval` prints it: consecutive windows without overlap, each a sequence of its
// own from position 0, the last one shorter (kept if it has at least 2 tokens); every token but the
// first of a window is scored; nll is the sum over all scored tokens by their number (natural
// logarithm), perplexity exp(nll). Text becomes ids elsewhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "forge/scores.h"
#include "model/model.h"

namespace sextant {

struct EvalOptions {
  int64_t window = 1024;
  int64_t max_windows = 0;                    // the first so many only; 0: all
  int64_t n_worst = 8;                        // positions of the largest KL that are listed
  const std::atomic<bool>* cancel = nullptr;  // looked at between steps
  std::function<void(int64_t done, int64_t total)>
      progress;  // tokens; called by the caller's thread
};

// kUsage for a window that is below 2 or longer than the model takes, kInput for ids out of range
// or too few of them.
Status check_eval_ids(const ModelConfig& config, std::span<const int32_t> ids, int64_t window);

// reference may be null. kUsage for a window below 2, kInput for ids out of range, too few of them,
// or two models whose vocabularies differ; kModel where logits stop being finite, naming the first
// bad tensor; kCancelled.
Result<EvalResult> evaluate(const Model& model, const Model* reference,
                            std::span<const int32_t> ids, const EvalOptions& options,
                            ThreadPool& pool);

// kGate with what was found and what was allowed.
Status check_eval_gates(const EvalResult& result, std::optional<double> max_ppl,
                        std::optional<double> max_kl);

}  // namespace sextant
