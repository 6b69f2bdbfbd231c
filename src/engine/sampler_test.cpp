#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/philox.h"
#include "io/ordered_json.h"

namespace sextant {
namespace {

int32_t pick(std::vector<float> logits, const SamplingParams& params, int64_t n_valid = 0,
             uint64_t index = 0) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  return sampler.sample(logits, n_valid > 0 ? n_valid : static_cast<int64_t>(logits.size()), params,
                        TokenCounts(), index);
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// The first vector of the authors' own test file (Random123, kat_vectors): zero counter and key.
TEST(Philox, KnownAnswer) {
  const PhiloxBlock block = philox4x64({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(block[0], 0x16554d9eca36314cU);
  EXPECT_EQ(block[1], 0xdb20fe9d672d0fdcU);
  EXPECT_EQ(block[2], 0xd7e772cee186176bU);
  EXPECT_EQ(block[3], 0x7e68b68aec7ba23bU);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(pick({1, 3, 3, 2}, greedy()), 1);
  EXPECT_EQ(pick({-1, -1, -1}, greedy()), 0);
}

// C121: rows of a padded embedding are never sampled, whatever they hold.
TEST(Sampler, PaddedIdsAreMasked) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(pick({0, 1, 9, nan}, greedy(), 2), 1);
  EXPECT_EQ(Sampler::first_bad(std::vector<float>{0, 1, 9, nan}, 3), -1);
  EXPECT_EQ(Sampler::first_bad(std::vector<float>{0, 1, 9, nan}, 4), 3);
  EXPECT_EQ(Sampler::first_bad(std::vector<float>{0, INFINITY, nan}, 3), 1);
  SamplingParams hot;
  hot.temperature = 100;
  for (uint64_t i = 0; i < 200; ++i) EXPECT_LT(pick({0, 0, 50, 50}, hot, 2, i), 2);
}

// 10 / 2 = 5 and -1 * 2 = -2 beside 4 and 6: by hand.
TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegative) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2;
  TokenCounts counts(4, 8);
  counts.add_prompt(std::vector<int32_t>{0});
  Sampler sampler(4);
  EXPECT_EQ(sampler.sample(std::vector<float>{10, 4, 6, -1}, 4, params, counts, 0), 2);
  counts.add_prompt(std::vector<int32_t>{2});  // 6 / 2 = 3
  EXPECT_EQ(sampler.sample(std::vector<float>{10, 4, 6, -1}, 4, params, counts, 0), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-3, -2, -1, -9}, 4, params, counts, 0), 1);
}

// Only the answer counts: 5 - (2 * 0.5 + 1) = 3, so 3.5 wins; a prompt occurrence changes nothing.
TEST(Sampler, PresenceAndFrequencyCountTheAnswerOnly) {
  SamplingParams params = greedy();
  params.frequency_penalty = 0.5;
  params.presence_penalty = 1;
  TokenCounts counts(3, 8);
  counts.add_prompt(std::vector<int32_t>{0, 0, 0, 0});
  Sampler sampler(3);
  const std::vector<float> logits = {5, 3.5F, 0};
  EXPECT_EQ(sampler.sample(logits, 3, params, counts, 0), 0);
  counts.add_answer(0);  // 5 - 1.5 = 3.5: the tie goes to the lower id
  EXPECT_EQ(sampler.sample(logits, 3, params, counts, 0), 0);
  counts.add_answer(0);
  EXPECT_EQ(sampler.sample(logits, 3, params, counts, 0), 1);
}

TEST(Sampler, BiasCanForceAndForbid) {
  SamplingParams params = greedy();
  params.logit_bias = {{2, 10.0F}};
  EXPECT_EQ(pick({1, 5, 0}, params), 2);
  params.logit_bias = {{1, -100.0F}};
  EXPECT_EQ(pick({1, 5, 0}, params), 0);
}

// Probabilities 0.5, 0.25, 0.125, 0.125 (logits ln 4, ln 2, 0, 0).
TEST(Sampler, FiltersKeepWhatTheySay) {
  const std::vector<float> logits = {std::log(4.0F), std::log(2.0F), 0, 0};
  const auto support = [&](const SamplingParams& params) {
    std::vector<int> seen(4);
    for (uint64_t i = 0; i < 400; ++i) ++seen[static_cast<size_t>(pick(logits, params, 0, i))];
    std::string text;
    for (const int n : seen) text += n > 0 ? 'x' : '.';
    return text;
  };
  SamplingParams params;
  EXPECT_EQ(support(params), "xxxx");
  params.top_k = 3;  // of the equal last two the lower id
  EXPECT_EQ(support(params), "xxx.");
  params.top_k = 0;
  params.top_p = 0.6F;  // 0.5 does not reach it, 0.75 does
  EXPECT_EQ(support(params), "xx..");
  params.top_p = 0.001F;
  EXPECT_EQ(support(params), "x...");
  params.top_p = 1;
  params.min_p = 0.3F;  // ratios 1, 0.5, 0.25, 0.25
  EXPECT_EQ(support(params), "xx..");
  params.min_p = 0;
  params.top_k = 2;
  params.top_p = 0.66F;  // of what top_k left: 2/3 reaches it
  EXPECT_EQ(support(params), "x...");
}

// 1000 draws of a fair four-sided choice: each within 5 standard deviations (68) of 250.
TEST(Sampler, DrawsAreUniform) {
  std::vector<int> seen(4);
  SamplingParams params;
  params.seed = 7;
  for (uint64_t i = 0; i < 1000; ++i) ++seen[static_cast<size_t>(pick({1, 1, 1, 1}, params, 0, i))];
  for (const int n : seen) EXPECT_NEAR(n, 250, 68);
}

TEST(Sampler, TinyTemperatureIsGreedyAndSafe) {
  SamplingParams params;
  params.temperature = std::numeric_limits<float>::denorm_min();
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(pick({1, 3, 2}, params, 0, i), 1);
}

// ln of 4/7, 2/7, 1/7.
TEST(Sampler, LogprobsAreThoseOfTheModel) {
  const std::vector<float> logits = {std::log(2.0F), std::log(4.0F), 0, 99};
  Sampler sampler(4);
  std::vector<TokenLogprob> top(2);
  EXPECT_NEAR(sampler.logprobs(logits, 3, 2, top), std::log(1.0 / 7), 1e-6);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_NEAR(top[0].logprob, std::log(4.0 / 7), 1e-6);
  EXPECT_EQ(top[1].id, 0);
  EXPECT_NEAR(top[1].logprob, std::log(2.0 / 7), 1e-6);
}

TEST(Sampler, ParametersOutOfRangeAreNamed) {
  const auto refused = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = check_sampling(params, 10);
    return status ? std::string("accepted") : status.error().where.field;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refused([](SamplingParams&) {}), "accepted");
  EXPECT_EQ(refused([](SamplingParams& p) { p.temperature = -0.1F; }), "temperature");
  EXPECT_EQ(refused([&](SamplingParams& p) { p.temperature = nan; }), "temperature");
  EXPECT_EQ(refused([](SamplingParams& p) { p.temperature = INFINITY; }), "temperature");
  EXPECT_EQ(refused([](SamplingParams& p) { p.top_p = 0; }), "top_p");
  EXPECT_EQ(refused([](SamplingParams& p) { p.top_p = 1.01F; }), "top_p");
  EXPECT_EQ(refused([&](SamplingParams& p) { p.top_p = nan; }), "top_p");
  EXPECT_EQ(refused([](SamplingParams& p) { p.top_k = -2; }), "top_k");
  EXPECT_EQ(refused([](SamplingParams& p) { p.top_k = -1; }), "accepted");
  EXPECT_EQ(refused([](SamplingParams& p) { p.min_p = 1.5F; }), "min_p");
  EXPECT_EQ(refused([](SamplingParams& p) { p.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(refused([&](SamplingParams& p) { p.repetition_penalty = nan; }), "repetition_penalty");
  EXPECT_EQ(refused([](SamplingParams& p) { p.presence_penalty = 2.5F; }), "presence_penalty");
  EXPECT_EQ(refused([](SamplingParams& p) { p.frequency_penalty = -2.5F; }), "frequency_penalty");
  EXPECT_EQ(refused([](SamplingParams& p) { p.logit_bias = {{10, 0.0F}}; }), "logit_bias");
  EXPECT_EQ(refused([](SamplingParams& p) { p.logit_bias = {{-1, 0.0F}}; }), "logit_bias");
  EXPECT_EQ(refused([&](SamplingParams& p) { p.logit_bias = {{1, nan}}; }), "logit_bias");
  EXPECT_EQ(refused([](SamplingParams& p) { p.logit_bias.resize(1025); }), "logit_bias");
}

// tools/golden/sampler.py: the rules of sampler.h written with numpy.
TEST(Sampler, EqualsNumpy) {
  const auto file = read_json(SX_SOURCE_DIR "/src/engine/testing/sampler_cases.json");
  ASSERT_TRUE(file) << file.error().text;
  for (const JsonValue& row : file->find("uniforms")->array())
    EXPECT_EQ(uniform(std::stoull(row.array()[0].as_string()),
                      static_cast<uint64_t>(row.array()[1].as_int())),
              row.array()[2].as_double());
  int64_t n_checked = 0;
  for (const JsonValue& item : file->find("cases")->array()) {
    const Json test = item.to_json();
    const Json& p = test["params"];
    SamplingParams params;
    params.temperature = p.value("temperature", 1.0F);
    params.top_k = p.value("top_k", 0);
    params.top_p = p.value("top_p", 1.0F);
    params.min_p = p.value("min_p", 0.0F);
    params.repetition_penalty = p.value("repetition_penalty", 1.0F);
    params.presence_penalty = p.value("presence_penalty", 0.0F);
    params.frequency_penalty = p.value("frequency_penalty", 0.0F);
    params.seed = p["seed"].get<uint64_t>();
    if (p.contains("logit_bias"))
      params.logit_bias = p["logit_bias"].get<std::vector<std::pair<int32_t, float>>>();
    const auto logits = test["logits"].get<std::vector<float>>();
    TokenCounts counts(48, 100);
    counts.add_prompt(test["prompt"].get<std::vector<int32_t>>());
    for (const int32_t id : test["answer"].get<std::vector<int32_t>>()) counts.add_answer(id);
    Sampler sampler(48);
    for (const Json& row : test["ids"]) {
      EXPECT_EQ(sampler.sample(logits, 48, params, counts, row[0].get<uint64_t>()),
                row[1].get<int32_t>())
          << p.dump() << " index " << row[0];
      ++n_checked;
    }
  }
  EXPECT_GT(n_checked, 900);
}

}  // namespace
}  // namespace sextant
