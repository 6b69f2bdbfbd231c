// The waist: requests go in, events come out. One thread calls everything here; it owns every
// session, page and counter, so the engine has no lock. Faces run an engine on a thread of its own
// and bring requests to it.
//
// A step serves all active requests: cancelled ones end, waiting ones are admitted while there are
// pages for all they may need, then prompts are prefilled by at most prefill_chunk tokens, then
// every request that has its prompt behind it gets one token from one batched forward pass. A
// decode step without log-probabilities allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/sampler.h"
#include "model/model.h"

namespace sextant {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  int64_t max_tokens = -1;        // tokens of the answer; -1: until the context is full
  std::vector<int32_t> stop_ids;  // end the answer, besides the model's end tokens
  bool ignore_eos = false;        // the model's end tokens are tokens like others
  int32_t n_logprobs = 0;         // top log-probabilities a token; 0: none
  int64_t n_valid_vocab = 0;  // ids from here on are masked (padded vocabularies); 0: the model's
};

using RequestId = int64_t;
enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled", "error"

struct Event {
  enum class Kind : uint8_t { kToken, kFinished };
  Kind kind = Kind::kToken;
  RequestId request = 0;
  int32_t token = -1;             // kToken; kFinished with kStop: the end token, which is no answer
  float logprob = 0.0F;           // kToken, when n_logprobs > 0
  std::vector<TokenLogprob> top;  // kToken, when n_logprobs > 0
  FinishReason reason = FinishReason::kStop;  // kFinished
  std::optional<Error> error;  // kError: non-finite logits, named by the first bad tap
  int64_t n_prompt = 0;        // kFinished: tokens of the prompt,
  int64_t n_reused = 0;        //   of these, those whose keys and values were still there,
  int64_t n_generated = 0;     //   and tokens sampled, the end token included
};

struct EngineOptions {
  int64_t max_context = 0;  // tokens of one sequence; 0: the model's, capped by memory with a note
  int64_t kv_bytes = 0;     // 0: enough for one sequence of max_context, within available memory
  int64_t max_requests = 64;    // active and waiting; one more is refused
  int64_t max_batch = 8;        // active at a time
  int64_t prefill_chunk = 512;  // tokens of prompts a step
  int64_t max_parked = 8;       // finished sequences kept for continued conversations
  int64_t max_stop_ids = 64;
  int32_t max_logprobs = 20;
  SamplingLimits sampling;
};

struct EngineStats {
  int64_t prompt_tokens = 0;  // prefilled
  int64_t reused_tokens = 0;  // of prompts, not prefilled because their keys and values were there
  int64_t generated_tokens = 0;
  int64_t n_errors = 0;  // requests that ended with kError
  int64_t n_active = 0;
  int64_t n_waiting = 0;
  int64_t n_free_pages = 0;  // parked sequences count as not free
  int64_t n_pages = 0;
  double prefill_s = 0;
  double decode_s = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const Model> model,
                                                const EngineOptions& options,
                                                std::shared_ptr<ThreadPool> pool);
  virtual ~Engine() = default;

  // Everything is checked here: ids, lengths, parameters (kUsage, or kInput for a prompt longer
  // than the context), and the bound of the queue (kResources).
  virtual Result<RequestId> submit(Request request) = 0;
  // Its kFinished event comes with the next step. Unknown and finished requests are ignored.
  virtual void cancel(RequestId request) = 0;
  // Runs one step; false when there was nothing to do. Events are appended.
  virtual bool step(std::vector<Event>& events) = 0;
  virtual EngineStats stats() const = 0;
  virtual const Model& model() const = 0;
  virtual int64_t max_context() const = 0;
  // What a user should know about the plan: a context capped by memory.
  virtual const std::vector<std::string>& notes() const = 0;
  // Forgets everything kept for continued conversations.
  virtual void reset() = 0;
};

}  // namespace sextant
