// A sequence through a model, step by step: owns the pages, the buffers and the logits that this
// takes, and what must be checked before. What steps are for is the caller's, in hooks. Results do
// not depend on the sizes of steps (dynamic NTK apart), memory does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "model/first_bad_tap.h"
#include "model/model.h"

namespace sextant {

// kInput for the first id that the model has no row for. what: "the prompt".
Status check_ids(const ModelConfig& config, std::span<const int32_t> ids, std::string_view what);

// The frequencies of dynamic NTK are those of the longest position of a call, so that a sequence
// under it must be one step.
inline bool is_one_step(const ModelConfig& config) {
  return config.rope.kind == RopeKind::kDynamic;
}

// n tokens in steps of `chunk`, the last one shorter.
std::vector<int64_t> even_steps(int64_t n, int64_t chunk);

struct SequenceHooks {
  Probe* probe = nullptr;
  const std::atomic<bool>* cancel = nullptr;               // looked at between steps
  std::function<void(int64_t begin, int64_t n)> before{};  // tokens [begin, begin + n) are next
  // What the step gave; an error ends the run.
  std::function<Status(int64_t begin, int64_t n, Mat<const float> logits)> after{};
};

class SequenceRunner {
 public:
  enum class Logits : uint8_t { kLast, kAll };  // of the sequence's last token, of every token

  // For sequences of at most max_tokens in steps of at most max_step. The model must outlive it.
  SequenceRunner(const Model& model, int64_t max_tokens, int64_t max_step, Logits logits,
                 ThreadPool& pool);

  // Tokens [begin, begin + n) of ids; begin 0 starts a sequence. The logits of the step's last
  // n_logits tokens live until the next step.
  Mat<const float> step(std::span<const int32_t> ids, int64_t begin, int64_t n, int64_t n_logits,
                        Probe* probe);
  // All of ids, which the caller has checked. kCancelled, or what a hook returns.
  Status run(std::span<const int32_t> ids, std::span<const int64_t> steps,
             const SequenceHooks& hooks);
  // The sequence again, up to the first tensor that is not finite.
  FirstBadTap first_bad(std::span<const int32_t> ids, std::span<const int64_t> steps);

 private:
  int64_t n_logits(bool is_last_step, int64_t n) const {
    return wanted_ == Logits::kAll ? n : is_last_step ? 1 : 0;
  }

  const Model& model_;
  ThreadPool& pool_;
  Logits wanted_;
  KvPool pages_;
  KvSequence kv_;
  StepBuffersPtr buffers_;
  std::vector<float> logits_;
};

}  // namespace sextant
