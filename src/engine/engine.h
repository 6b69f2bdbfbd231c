// The waist: requests go in, events come out. One thread calls step(); it owns every session, page
// and counter. Batched scheduling comes with the server; the interface is the final one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "model/model.h"

namespace sextant {

struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int64_t max_tokens = -1;        // -1: until the context is full
  std::vector<int32_t> stop_ids;  // the model's end tokens unless ignore_eos
  bool ignore_eos = false;
  int32_t n_logprobs = 0;     // top log-probabilities a token; 0: none
  int64_t n_valid_vocab = 0;  // ids from here on are masked (padded vocabularies); 0: the model's
};

using RequestId = int64_t;
enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0F;
};

struct Event {
  enum class Kind : uint8_t { kToken, kFinished };
  Kind kind = Kind::kToken;
  RequestId request = 0;
  int32_t token = 0;                          // kToken
  float logprob = 0.0F;                       // kToken, when n_logprobs > 0
  std::vector<TokenLogprob> top;              // kToken, when n_logprobs > 0
  FinishReason reason = FinishReason::kStop;  // kFinished
  std::optional<Error>
      error;  // kFinished with kError: names the first bad tap for non-finite logits
};

struct EngineOptions {
  int64_t max_context = 0;  // tokens of one sequence; 0: the model's, capped by kv_bytes
  int64_t kv_bytes = 0;     // 0: enough for one sequence of max_context, within available memory
  int64_t max_requests = 64;
  int64_t prefill_chunk = 512;
};

struct EngineStats {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill_s = 0;
  double decode_s = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const Model> model,
                                                const EngineOptions& options,
                                                std::shared_ptr<ThreadPool> pool);
  virtual ~Engine() = default;

  virtual Result<RequestId> submit(
      Request request) = 0;  // validated here: ids in range, prompt fits, parameters in range
  virtual void cancel(RequestId request) = 0;  // its kFinished event follows within one step
  // Runs one step of all active requests; false when there was nothing to do. Events are appended.
  virtual bool step(std::vector<Event>& events) = 0;
  virtual EngineStats stats() const = 0;
  virtual const Model& model() const = 0;
  virtual int64_t max_context() const = 0;
  // Forgets everything cached for continued conversations.
  virtual void reset() = 0;
};

}  // namespace sextant
