// What eval counts, against sums made here from the golden dumps' own logits; KL and gates.
#include "forge/evaluate.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::dump_floats;
using testing::dump_ids;
using testing::EditedCheckpoint;
using testing::golden_dir;
using ::testing::HasSubstr;
using testing::TempDir;

std::shared_ptr<const Model> load(const std::filesystem::path& path, ThreadPool& pool,
                                  const char* policy = "f32") {
  ModelOptions options;
  options.policies = {policy};
  const auto model = Model::load(path, options, pool);
  EXPECT_TRUE(model.has_value()) << model.error().text;
  return model ? *model : nullptr;
}

std::vector<int32_t> all_ids(const std::string& directory) {
  std::vector<int32_t> out;
  for (const auto& row : dump_ids(directory)) out.insert(out.end(), row.begin(), row.end());
  return out;
}

double nll_of(const float* logits, int64_t n_vocab, int32_t next) {
  double sum = 0;
  for (int64_t i = 0; i < n_vocab; ++i) sum += std::exp(double{logits[i]});
  return std::log(sum) - double{logits[next]};
}

// The dump's two sequences of 48 are two windows; the reference is the dump, not our model.
TEST(Evaluate, windows_of_the_dump) {
  ThreadPool pool(2);
  for (const char* directory : {"llama2", "modelopt-llama3-separate", "llama-rope-dynamic"}) {
    const auto model = load(golden_dir(directory), pool);
    ASSERT_NE(model, nullptr);
    const auto ids = all_ids(directory);
    const auto logits = dump_floats(directory, "logits");
    const int64_t n_vocab = model->config().n_vocab;
    EvalOptions options;
    options.window = 48;
    const auto result = evaluate(*model, nullptr, ids, options, pool);
    ASSERT_TRUE(result.has_value()) << result.error().text;
    EXPECT_EQ(result->n_windows, 2);
    EXPECT_EQ(result->n_tokens, 96);
    EXPECT_EQ(result->n_scored, 94);
    double total = 0;
    for (int64_t w = 0; w < 2; ++w) {
      double sum = 0;
      for (int64_t t = 0; t + 1 < 48; ++t)
        sum += nll_of(logits.data() + (w * 48 + t) * n_vocab, n_vocab,
                      ids[static_cast<size_t>(w * 48 + t + 1)]);
      EXPECT_NEAR(result->window_nll_sum[static_cast<size_t>(w)], sum, 1e-4 * sum);
      total += sum;
    }
    EXPECT_NEAR(result->nll, total / 94, 1e-4);
    EXPECT_DOUBLE_EQ(result->perplexity, std::exp(result->nll));
  }
}

// The last window is shorter, and dropped when it has one token: nothing in it can be scored.
TEST(Evaluate, the_last_window) {
  ThreadPool pool(1);
  const auto model = load(golden_dir("llama2"), pool);
  const auto ids = all_ids("llama2");
  EvalOptions options;
  options.window = 19;  // 96 = 5 * 19 + 1
  auto result = evaluate(*model, nullptr, ids, options, pool);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->n_windows, 5);
  EXPECT_EQ(result->n_tokens, 95);
  EXPECT_EQ(result->n_scored, 5 * 18);
  options.window = 94;  // 96 = 94 + 2
  result = evaluate(*model, nullptr, ids, options, pool);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->n_windows, 2);
  EXPECT_EQ(result->n_scored, 93 + 1);
}

TEST(Evaluate, a_model_against_itself_and_against_another) {  // case C089 in small
  ThreadPool pool(2);
  const auto model = load(golden_dir("modelopt-llama3-shared"), pool);
  const auto ids = all_ids("modelopt-llama3-shared");
  EvalOptions options;
  options.window = 48;
  auto result = evaluate(*model, model.get(), ids, options, pool);
  ASSERT_TRUE(result.has_value()) << result.error().text;
  EXPECT_EQ(result->against->mean_kl, 0.0);
  EXPECT_EQ(result->against->mean_kl_reverse, 0.0);
  EXPECT_EQ(result->against->top1_agreement, 1.0);
  EXPECT_EQ(result->against->perplexity, result->perplexity);
  EXPECT_TRUE(check_eval_gates(*result, result->perplexity, 0.0).has_value());

  TempDir dir;
  EditedCheckpoint c("modelopt-llama3-shared");
  std::string& scale = c.tensors["model.layers.1.mlp.down_proj.weight_scale_2"].bytes;
  float g = 0;
  std::memcpy(&g, scale.data(), 4);
  g *= 1.25F;
  std::memcpy(scale.data(), &g, 4);
  c.write(dir.path());
  const auto faulty = load(dir.path(), pool);
  result = evaluate(*faulty, model.get(), ids, options, pool);
  ASSERT_TRUE(result.has_value()) << result.error().text;
  const EvalAgainst& against = *result->against;
  EXPECT_GT(against.mean_kl, 1e-4);
  EXPECT_GT(against.mean_kl_reverse, 1e-4);
  ASSERT_EQ(against.worst.size(), 8U);
  EXPECT_EQ(against.worst[0].kl, against.max_kl);
  for (size_t i = 1; i < 8; ++i) EXPECT_LE(against.worst[i].kl, against.worst[i - 1].kl);
  const auto gate = check_eval_gates(*result, std::nullopt, 1e-6);
  ASSERT_FALSE(gate.has_value());
  EXPECT_EQ(gate.error().code, Code::kGate);
}

TEST(Evaluate, kl_of_two_known_distributions) {
  // BF16 activations against float32: KL from the logits themselves.
  ThreadPool pool(2);
  const auto a16 = load(golden_dir("llama2"), pool, "a16");
  const auto f32 = load(golden_dir("llama2"), pool);
  const auto ids = dump_ids("llama2")[0];
  EvalOptions options;
  options.window = 48;
  const auto result = evaluate(*a16, f32.get(), ids, options, pool);
  ASSERT_TRUE(result.has_value());
  auto p = testing::run_logits(*f32, ids, {48}, pool);
  auto q = testing::run_logits(*a16, ids, {48}, pool);
  const auto n_vocab = static_cast<size_t>(f32->config().n_vocab);
  p.resize(47 * n_vocab);
  q.resize(47 * n_vocab);
  EXPECT_NEAR(result->against->mean_kl, testing::mean_kl(p, q, static_cast<int64_t>(n_vocab)),
              1e-9);
}

TEST(Evaluate, what_cannot_be_evaluated) {
  ThreadPool pool(1);
  const auto model = load(golden_dir("llama2"), pool);
  const auto other = load(golden_dir("qwen3"), pool);
  const auto ids = all_ids("llama2");
  EvalOptions options;
  options.window = 48;
  const auto code = [&](const Model* reference, std::span<const int32_t> tokens) {
    const auto result = evaluate(*model, reference, tokens, options, pool);
    EXPECT_FALSE(result.has_value());
    return result ? Code::kInternal : result.error().code;
  };
  EXPECT_EQ(code(nullptr, std::span(ids).first(1)), Code::kInput);
  EXPECT_EQ(code(other.get(), ids), Code::kInput);  // 352 tokens against 320
  EXPECT_EQ(code(nullptr, std::vector<int32_t>{1, 320}), Code::kInput);
  EXPECT_EQ(code(nullptr, std::vector<int32_t>{1, -1}), Code::kInput);
  options.window = 1;
  EXPECT_EQ(code(nullptr, ids), Code::kUsage);
  options.window = 129;
  EXPECT_EQ(code(nullptr, ids), Code::kUsage);
  options.window = 48;
  std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_EQ(code(nullptr, ids), Code::kCancelled);
}

TEST(Evaluate, a_nan_is_an_error_that_names_its_source) {
  ThreadPool pool(2);
  TempDir dir;
  EditedCheckpoint c("llama2");
  std::string& bytes = c.tensors["model.layers.1.mlp.up_proj.weight"].bytes;
  bytes[0] = '\xC0';
  bytes[1] = '\x7F';
  c.write(dir.path());
  const auto model = load(dir.path(), pool, "a16");
  EvalOptions options;
  options.window = 48;
  const auto result = evaluate(*model, nullptr, all_ids("llama2"), options, pool);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kModel);
  EXPECT_THAT(result.error().text, HasSubstr("model.layers.1.mlp.up_proj"));
}

}  // namespace
}  // namespace sextant
