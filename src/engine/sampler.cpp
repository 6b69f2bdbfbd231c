#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/philox.h"

namespace sextant {
namespace {

tl::unexpected<Error> bad_parameter(std::string field, std::string_view expected, double found) {
  std::string text = fmt::format("{}: expected {}, found {}", field, expected, found);
  return tl::unexpected<Error>(
      Error{Code::kUsage, std::move(text), {{}, {}, std::move(field), {}}});
}

// NaN fails both comparisons.
bool within(float value, float low, float high) { return value >= low && value <= high; }

}  // namespace

Status check_sampling(const SamplingParams& params, int64_t n_vocab, const SamplingLimits& limits) {
  if (!within(params.temperature, 0.0F, limits.max_temperature))
    return bad_parameter("temperature", fmt::format("0 to {}", limits.max_temperature),
                         params.temperature);
  if (params.top_k < -1) return bad_parameter("top_k", "at least 1, or 0 for all", params.top_k);
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F))
    return bad_parameter("top_p", "above 0 and at most 1", params.top_p);
  if (!within(params.min_p, 0.0F, 1.0F)) return bad_parameter("min_p", "0 to 1", params.min_p);
  if (!(params.repetition_penalty > 0.0F &&
        params.repetition_penalty <= limits.max_repetition_penalty))
    return bad_parameter("repetition_penalty",
                         fmt::format("above 0 and at most {}", limits.max_repetition_penalty),
                         params.repetition_penalty);
  if (!within(params.presence_penalty, -2.0F, 2.0F))
    return bad_parameter("presence_penalty", "-2 to 2", params.presence_penalty);
  if (!within(params.frequency_penalty, -2.0F, 2.0F))
    return bad_parameter("frequency_penalty", "-2 to 2", params.frequency_penalty);
  const auto n_biases = static_cast<int64_t>(params.logit_bias.size());
  if (n_biases > limits.max_biases)
    return bad_parameter("logit_bias", fmt::format("at most {} entries", limits.max_biases),
                         static_cast<double>(n_biases));
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= n_vocab)
      return bad_parameter("logit_bias", fmt::format("token ids from 0 to {}", n_vocab - 1), id);
    if (!within(bias, -limits.max_bias, limits.max_bias))
      return bad_parameter("logit_bias", fmt::format("biases from -{0} to {0}", limits.max_bias),
                           bias);
  }
  return {};
}

TokenCounts::TokenCounts(int64_t n_vocab, int64_t max_tokens)
    : in_answer_(static_cast<size_t>(n_vocab)), is_seen_(static_cast<size_t>(n_vocab)) {
  seen_.reserve(static_cast<size_t>(std::min(n_vocab, max_tokens)));
}

void TokenCounts::note(int32_t id) {
  const auto i = static_cast<size_t>(id);
  if (is_seen_[i]) return;
  is_seen_[i] = true;
  seen_.push_back(id);
}

void TokenCounts::add_prompt(std::span<const int32_t> ids) {
  for (const int32_t id : ids) note(id);
}

void TokenCounts::add_answer(int32_t id) {
  note(id);
  ++in_answer_[static_cast<size_t>(id)];
}

Sampler::Sampler(int64_t n_vocab)
    : adjusted_(static_cast<size_t>(n_vocab)),
      candidates_(static_cast<size_t>(n_vocab)),
      weights_(static_cast<size_t>(n_vocab)) {}

int64_t Sampler::first_bad(std::span<const float> logits, int64_t n_valid) {
  for (int64_t i = 0; i < n_valid; ++i)
    if (!std::isfinite(logits[static_cast<size_t>(i)])) return i;
  return -1;
}

void Sampler::adjust(const SamplingParams& params, const TokenCounts& counts) {
  for (const auto& [id, bias] : params.logit_bias) adjusted_[static_cast<size_t>(id)] += bias;
  if (!counts.enabled()) return;
  for (const int32_t id : counts.seen()) {
    float& logit = adjusted_[static_cast<size_t>(id)];
    if (params.repetition_penalty != 1.0F)
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    const int32_t n = counts.in_answer(id);
    if (n > 0) logit -= params.frequency_penalty * static_cast<float>(n) + params.presence_penalty;
  }
}

int32_t Sampler::sample(std::span<const float> logits, int64_t n_valid,
                        const SamplingParams& params, const TokenCounts& counts, uint64_t index) {
  SX_CHECK(n_valid > 0 && n_valid <= static_cast<int64_t>(logits.size()) &&
               logits.size() <= adjusted_.size(),
           "{} valid of {} logits, scratch for {}", n_valid, logits.size(), adjusted_.size());
  std::copy_n(logits.begin(), logits.size(), adjusted_.begin());
  adjust(params, counts);
  if (params.temperature == 0.0F) {
    // max_element returns the first of equals.
    const auto best = std::max_element(adjusted_.begin(), adjusted_.begin() + n_valid);
    return static_cast<int32_t>(best - adjusted_.begin());
  }
  return draw(params, n_valid, index);
}

// Sorts only as much of the candidates as the nucleus needs: 64, then twice as many, ...
size_t Sampler::keep_top_p(size_t n, double max_logit, const SamplingParams& params) {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    sum += std::exp((candidates_[i].logit - max_logit) / params.temperature);
  const double wanted = static_cast<double>(params.top_p) * sum;
  double running = 0;
  size_t sorted = 0;
  for (size_t step = 64; sorted < n; step *= 2) {
    const size_t end = std::min(n, sorted + step);
    std::partial_sort(candidates_.begin() + static_cast<int64_t>(sorted),
                      candidates_.begin() + static_cast<int64_t>(end),
                      candidates_.begin() + static_cast<int64_t>(n), likelier);
    for (; sorted < end; ++sorted) {
      running += std::exp((candidates_[sorted].logit - max_logit) / params.temperature);
      if (running >= wanted) return sorted + 1;
    }
  }
  return n;
}

int32_t Sampler::draw(const SamplingParams& params, int64_t n_valid, uint64_t index) {
  auto n = static_cast<size_t>(n_valid);
  const bool reorders = params.top_p < 1.0F || (params.top_k > 0 && params.top_k < n_valid);
  for (size_t i = 0; i < n; ++i) candidates_[i] = {static_cast<int32_t>(i), adjusted_[i]};
  const auto end_of = [this](size_t count) {
    return candidates_.begin() + static_cast<int64_t>(count);
  };
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < n) {
    std::nth_element(candidates_.begin(), end_of(static_cast<size_t>(params.top_k)), end_of(n),
                     likelier);
    n = static_cast<size_t>(params.top_k);
  }
  const double max_logit =
      std::max_element(candidates_.begin(), end_of(n), [](const Candidate& a, const Candidate& b) {
        return a.logit < b.logit;
      })->logit;
  if (params.top_p < 1.0F) n = keep_top_p(n, max_logit, params);
  if (params.min_p > 0.0F) {
    const auto kept = std::remove_if(candidates_.begin(), end_of(n), [&](const Candidate& c) {
      return std::exp((c.logit - max_logit) / params.temperature) < params.min_p;
    });
    n = static_cast<size_t>(kept - candidates_.begin());
  }
  if (reorders)
    std::sort(candidates_.begin(), end_of(n),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    weights_[i] = std::exp((candidates_[i].logit - max_logit) / params.temperature);
    sum += weights_[i];
  }
  const double wanted = uniform(params.seed, index) * sum;
  double running = 0;
  size_t last = 0;
  for (size_t i = 0; i < n; ++i) {
    if (weights_[i] == 0) continue;
    last = i;
    running += weights_[i];
    if (running > wanted) break;
  }
  return candidates_[last].id;
}

float Sampler::logprobs(std::span<const float> logits, int64_t n_valid, int32_t id,
                        std::span<TokenLogprob> top) {
  const auto valid = logits.first(static_cast<size_t>(n_valid));
  const double max_logit = *std::max_element(valid.begin(), valid.end());
  double sum = 0;
  for (const float logit : valid) sum += std::exp(logit - max_logit);
  const double log_sum = max_logit + std::log(sum);
  const size_t n_top = std::min(top.size(), valid.size());
  for (size_t i = 0; i < valid.size(); ++i) candidates_[i] = {static_cast<int32_t>(i), valid[i]};
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(n_top),
                    candidates_.begin() + static_cast<int64_t>(valid.size()),
                    [](const Candidate& a, const Candidate& b) {
                      return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
                    });
  for (size_t i = 0; i < n_top; ++i)
    top[i] = {candidates_[i].id, static_cast<float>(candidates_[i].logit - log_sum)};
  return static_cast<float>(logits[static_cast<size_t>(id)] - log_sum);
}

}  // namespace sextant
