// From a row of logits to a token. The order of what happens, each step skipped when it is off:
//   1. ids from n_valid on are masked (padded vocabularies); a non-finite logit before them is
//      refused: the caller makes an error of it, never a token;
//   2. logit_bias is added;
//   3. repetition_penalty p over ids of prompt and answer: l > 0 ? l / p : l * p;
//   4. frequency_penalty * count + presence_penalty, over ids of the answer, subtracted;
//   5. temperature 0: the largest logit, the lowest id among equals. Otherwise logits /
//   temperature;
//   6. top_k: the k largest (equals: lower ids first);
//   7. top_p: of what is left, renormalized, the fewest most likely whose sum reaches top_p;
//   8. min_p: of what is left, those at least min_p times as likely as the most likely;
//   9. one uniform number u of philox.h for (seed, number of tokens so far): in ascending id order
//      the first id whose running sum of what is left exceeds u times the whole sum.
// Steps 2 to 4 are float32, probabilities are float64. Log-probabilities are those of the model's
// own distribution: the soft-max of the logits of step 1, before everything else.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sextant {

struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy
  int32_t top_k = 0;         // 0 or -1: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

struct SamplingLimits {
  float max_temperature = 100.0F;
  float max_repetition_penalty = 100.0F;
  float max_bias = 100.0F;
  int64_t max_biases = 1024;
};

// Every parameter in its range, ids below n_vocab; the error's field names the parameter.
Status check_sampling(const SamplingParams& params, int64_t n_vocab,
                      const SamplingLimits& limits = {});

// How often each id occurred, for the penalties. Sized when made; later calls allocate nothing.
class TokenCounts {
 public:
  TokenCounts() = default;
  TokenCounts(int64_t n_vocab, int64_t max_tokens);
  bool enabled() const { return !in_answer_.empty(); }
  void add_prompt(std::span<const int32_t> ids);
  void add_answer(int32_t id);
  std::span<const int32_t> seen() const { return seen_; }  // distinct ids
  int32_t in_answer(int32_t id) const { return in_answer_[static_cast<size_t>(id)]; }

 private:
  void note(int32_t id);
  std::vector<int32_t> in_answer_;  // [n_vocab]
  std::vector<bool> is_seen_;       // [n_vocab]
  std::vector<int32_t> seen_;
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0F;
};

// Scratch for one vocabulary, shared by all requests of an engine. Calls allocate nothing.
class Sampler {
 public:
  explicit Sampler(int64_t n_vocab);

  // The first id in [0, n_valid) whose logit is not finite; -1 where all are.
  static int64_t first_bad(std::span<const float> logits, int64_t n_valid);

  // logits [n_vocab], all finite before n_valid. counts may be disabled; index: tokens sampled so
  // far.
  int32_t sample(std::span<const float> logits, int64_t n_valid, const SamplingParams& params,
                 const TokenCounts& counts, uint64_t index);

  // The log-probability of id; top [n] gets the n most likely (equals: lower ids first).
  float logprobs(std::span<const float> logits, int64_t n_valid, int32_t id,
                 std::span<TokenLogprob> top);

 private:
  struct Candidate {
    int32_t id;
    float logit;
  };
  void adjust(const SamplingParams& params, const TokenCounts& counts);
  int32_t draw(const SamplingParams& params, int64_t n_valid, uint64_t index);
  size_t keep_top_p(size_t n, double max_logit, const SamplingParams& params);

  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace sextant
