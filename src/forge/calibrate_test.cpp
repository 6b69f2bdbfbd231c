// What a calibration measures, on data whose numbers are known, and what follows from it; then
// golden models, whose routers' choices another framework has recorded.
#include "forge/calibrate.h"

#include <cmath>
#include <limits>
#include <list>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forge/input_statistics.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::dump_ids;
using testing::dump_router_ids;
using testing::golden_dir;
using ::testing::HasSubstr;

TEST(MagnitudeHistogram, StepsAreThirtySecondsOfABinade) {
  using Histogram = MagnitudeHistogram;
  const auto end = [](float x) { return Histogram::upper_end(Histogram::step_of(x)); };
  EXPECT_EQ(end(1.0F), 1.03125F);
  EXPECT_EQ(end(-1.0F), 1.03125F);
  EXPECT_EQ(end(1.03F), 1.03125F);
  EXPECT_EQ(end(1.03125F), 1.0625F);
  EXPECT_EQ(end(1.97F), 2.0F);
  EXPECT_EQ(end(100.0F), 102.0F);  // 64 * (1 + 19 / 32)
  EXPECT_EQ(end(0.0F), 0x1p-24F);
  EXPECT_EQ(end(1e-30F), 0x1p-24F);
  EXPECT_EQ(end(0x1p-24F), 0x1.08p-24F);
  EXPECT_EQ(end(0x1.fffffep39F), 0x1p40F);
  EXPECT_TRUE(std::isinf(end(0x1p40F)));
  EXPECT_TRUE(std::isinf(end(std::numeric_limits<float>::max())));
}

TEST(MagnitudeHistogram, PercentilesAreRanks) {
  MagnitudeHistogram histogram;
  EXPECT_EQ(histogram.percentile(0.99), 0);
  const auto add = [&](float x, int64_t n) { histogram.add(MagnitudeHistogram::step_of(x), n); };
  add(1.0F, 990);
  add(4.0F, 9);
  add(16.0F, 1);
  EXPECT_EQ(histogram.percentile(0.99), 1.03125);  // the 990th
  EXPECT_EQ(histogram.percentile(0.991), 4.125);   // the 991st
  EXPECT_EQ(histogram.percentile(0.999), 4.125);   // the 999th
  EXPECT_EQ(histogram.percentile(0.9999), 16.5);   // the 1000th
}

class InputStatisticsTest : public ::testing::Test {
 protected:
  // Every tensor at an address of its own.
  void input(const char* module, std::vector<float> values, int64_t cols) {
    kept_.push_back(std::move(values));
    visit(module, kept_.back(), cols);
  }
  void visit(const char* module, const std::vector<float>& x, int64_t cols) {
    const auto rows = static_cast<int64_t>(x.size()) / cols;
    statistics_.visit({"input", 0, module, {}}, Mat<const float>(x.data(), rows, cols));
  }
  const InputStatistics::Module& at(const char* module) const {
    return statistics_.modules().at(module);
  }
  ThreadPool pool_{3};
  InputStatistics statistics_{pool_};
  std::list<std::vector<float>> kept_;
};

TEST_F(InputStatisticsTest, KnownNumbersOverSteps) {
  input("a", {3, -4, 0, 0}, 2);
  input("a", {1, -12}, 2);
  const TapStatistics& a = at("a").statistics;
  EXPECT_EQ(a.n_rows, 3);
  EXPECT_EQ(a.amax, 12);
  EXPECT_DOUBLE_EQ(a.rms(), std::sqrt((9.0 + 16 + 1 + 144) / 6));
  // Of |x| = 0 0 1 3 4 12 the third is the median.
  EXPECT_EQ(at("a").histogram.percentile(0.5), 1.03125);
  EXPECT_EQ(at("a").histogram.percentile(0.6), 3.0625);
  EXPECT_TRUE(statistics_.bad_module().empty());
}

// q, k and v of one call see the same tensor; the next call's lies at the same address.
TEST_F(InputStatisticsTest, SharedInputsAndBuffersThatAreUsedAgain) {
  std::vector<float> x = {1, 2, 3, 4};
  visit("q", x, 2);
  visit("k", x, 2);
  statistics_.visit({"q", 0, "q", {}}, Mat<const float>(x.data(), 2, 2));
  x = {8, 8, 8, 8};
  visit("q", x, 2);
  visit("k", x, 2);
  for (const char* module : {"q", "k"}) {
    EXPECT_EQ(at(module).statistics.n_rows, 4);
    EXPECT_EQ(at(module).statistics.amax, 8);
    EXPECT_DOUBLE_EQ(at(module).statistics.rms(), std::sqrt((1.0 + 4 + 9 + 16 + 4 * 64) / 8));
    EXPECT_EQ(at(module).histogram.percentile(0.25), 2.0625);  // the second of eight
  }
  EXPECT_FALSE(statistics_.modules().contains("v"));
  EXPECT_EQ(statistics_.modules().size(), 2U);  // outputs are not looked at
}

TEST_F(InputStatisticsTest, TheFirstBadInputIsNamed) {
  const float inf = std::numeric_limits<float>::infinity();
  input("a", {1, 2}, 2);
  input("b", {1, -inf}, 2);
  input("c", {NAN, 2}, 2);
  EXPECT_EQ(statistics_.bad_module(), "b");
}

TEST_F(InputStatisticsTest, TokensOfExperts) {
  const std::vector<int32_t> ids = {0, 3, 3, 1};
  statistics_.visit_ids({"router_ids", 2, {}, {}}, Mat<const int32_t>(ids.data(), 2, 2));
  statistics_.visit_ids({"router_ids", 2, {}, {}}, Mat<const int32_t>(ids.data(), 1, 2));
  EXPECT_EQ(statistics_.expert_tokens().at(2), (std::vector<int64_t>{2, 1, 0, 3}));
}

InputScaleEntry entry(std::optional<double> measured, std::optional<double> stored) {
  InputScaleEntry out;
  if (measured) out.measured = MeasuredInput{.n_rows = 1, .amax = *measured};
  if (stored) out.stored = StoredInputScale{static_cast<float>(*stored / 2688), *stored};
  return out;
}

TEST(ChooseMultipliers, TheLargerOfMeasuredWithHeadroomAndStored) {
  InputScales scales;
  scales.headroom = 8;
  scales.modules["measured"] = entry(2688, std::nullopt);
  scales.modules["measured is larger"] = entry(336, 1344);  // 8 * 336 = 2688
  scales.modules["stored is larger"] = entry(168, 2688);    // 8 * 168 = 1344
  scales.modules["stored"] = entry(std::nullopt, 1344);
  scales.modules["stored, r = 2^-12"] = entry(5376 * 0x1p-12, 5376);
  scales.modules["a divisor stored"] = entry(2688 * 0x1p-15, 2688 * 0x1p+12);
  scales.modules["zeros"] = entry(0, std::nullopt);
  scales.modules["zeros, stored"] = entry(0, 1344);
  scales.modules["nothing"] = entry(std::nullopt, std::nullopt);
  scales.modules["too small for float32"] = entry(1e-40, std::nullopt);
  choose_multipliers(scales);
  const auto is = [&](const char* module, std::optional<float> g, ScaleSource source) {
    EXPECT_EQ(scales.modules.at(module).g, g) << module;
    EXPECT_EQ(scales.modules.at(module).source, source) << module;
  };
  is("measured", 8.0F, ScaleSource::kMeasured);
  is("measured is larger", 1.0F, ScaleSource::kMeasured);
  is("stored is larger", 1.0F, ScaleSource::kStored);
  is("stored", 0.5F, ScaleSource::kStored);
  is("stored, r = 2^-12", 2.0F, ScaleSource::kStored);
  is("a divisor stored", 0x1p-12F, ScaleSource::kMeasured);
  is("zeros", std::nullopt, ScaleSource::kNone);
  is("zeros, stored", 0.5F, ScaleSource::kStored);
  is("nothing", std::nullopt, ScaleSource::kNone);
  is("too small for float32", std::nullopt, ScaleSource::kNone);
  EXPECT_TRUE(scales.unreached.empty());
}

// The number of a stored scale comes back bit for bit, though it goes by its amax.
TEST(ChooseMultipliers, StoredMultipliersKeepTheirBits) {
  for (const float g : {2.5141e-4F, 0.1F, 0x1.fffffep-20F, 3.7201e-5F}) {
    InputScales scales;
    scales.modules["m"].stored = StoredInputScale{g, double{g} * 2688};
    choose_multipliers(scales);
    EXPECT_EQ(scales.modules.at("m").g, g);
  }
}

TEST(ChooseMultipliers, AnExpertNeverReachedTakesItsPeersMaximum) {
  InputScales scales;
  scales.headroom = 2;
  const auto module = [](int layer, int expert, const char* part) {
    return fmt::format("model.layers.{}.mlp.experts.{}.{}", layer, expert, part);
  };
  // Layer 5 has a module whose number is the expert's too. Expert 3 is reached by nobody.
  scales.expert_tokens[5] = {4, 1, 2, 0};
  scales.expert_tokens[6] = {4, 1, 2, 1};
  scales.modules[module(5, 0, "up_proj")] = entry(1344, std::nullopt);
  scales.modules[module(5, 1, "up_proj")] = entry(2688, std::nullopt);  // 2 * 2688
  scales.modules[module(5, 2, "up_proj")] = entry(10, 2688);
  scales.modules[module(5, 3, "up_proj")] = entry(std::nullopt, std::nullopt);
  scales.modules[module(5, 0, "down_proj")] = entry(13440, std::nullopt);
  scales.modules[module(5, 3, "down_proj")] = entry(std::nullopt, 1344);
  scales.modules[module(6, 0, "up_proj")] = entry(26880, std::nullopt);
  scales.modules[module(6, 3, "up_proj")] = entry(0, std::nullopt);  // reached: zeros came by
  choose_multipliers(scales);
  const InputScaleEntry& up = scales.modules.at(module(5, 3, "up_proj"));
  EXPECT_EQ(up.g, 2.0F);  // of the same linear in the same layer
  EXPECT_EQ(up.source, ScaleSource::kPeerMax);
  const InputScaleEntry& down = scales.modules.at(module(5, 3, "down_proj"));
  EXPECT_EQ(down.g, 0.5F);
  EXPECT_EQ(down.source, ScaleSource::kStored);
  EXPECT_EQ(scales.modules.at(module(6, 3, "up_proj")).source, ScaleSource::kNone);
  ASSERT_EQ(scales.unreached.size(), 1U);
  EXPECT_EQ(scales.unreached[0].layer, 5);
  EXPECT_EQ(scales.unreached[0].expert, 3);
  EXPECT_EQ(scales.unreached[0].source, ScaleSource::kPeerMax);
}

TEST(CalibrationWindows, WithoutOverlapAndNoneOfOneToken) {
  std::vector<int32_t> ids(9);
  std::iota(ids.begin(), ids.end(), 0);
  using Windows = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(calibration_windows(ids, 4, 0), (Windows{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(calibration_windows(ids, 7, 0), (Windows{{0, 1, 2, 3, 4, 5, 6}, {7, 8}}));
  EXPECT_EQ(calibration_windows(ids, 4, 1), (Windows{{0, 1, 2, 3}}));
  EXPECT_EQ(calibration_windows({ids.data(), 1}, 4, 0), Windows{});
  EXPECT_EQ(calibration_windows({}, 4, 0), Windows{});
}

TEST(BuiltinPrompts, AreManyAndOfVariedLength) {
  std::set<std::string_view> different(builtin_prompts().begin(), builtin_prompts().end());
  EXPECT_EQ(different.size(), builtin_prompts().size());
  EXPECT_GE(different.size(), 32U);  // nvfp4.md 4.3
  EXPECT_FALSE(different.contains(""));
  std::set<size_t> lengths;
  for (const std::string_view prompt : different) lengths.insert(prompt.size() / 16);
  EXPECT_GE(lengths.size(), 20U);
}

class CalibrateTest : public ::testing::Test {
 protected:
  void load(const std::string& name, const std::string& policy = "a16") {
    checkpoint_ = std::move(*Checkpoint::open(golden_dir(name)));
    ModelOptions options;
    options.policies = {policy};
    auto model = Model::load(golden_dir(name), options, pool_);
    ASSERT_TRUE(model.has_value()) << model.error().text;
    model_ = *model;
  }
  Result<InputScales> run(const std::vector<std::vector<int32_t>>& sequences,
                          const CalibrateOptions& options = {}) {
    return calibrate(*model_, *checkpoint_, sequences, options, pool_);
  }

  ThreadPool pool_{2};
  std::unique_ptr<Checkpoint> checkpoint_;
  std::shared_ptr<const Model> model_;
};

// Tokens of experts are those of the dump's routers, and each expert saw as many rows.
TEST_F(CalibrateTest, ExpertsAreCountedAsTheDumpHasThem) {
  for (const std::string name : {"qwen3-moe", "qwen3-moe-mixed", "modelopt-qwen3-moe"}) {
    load(name, "f32");
    const auto scales = run(dump_ids(name));
    ASSERT_TRUE(scales.has_value()) << scales.error().text;
    const ModelConfig& config = model_->config();
    int64_t n_sparse = 0;
    for (int64_t layer = 0; layer < config.n_layers; ++layer) {
      if (!config.sparse[static_cast<size_t>(layer)]) {
        EXPECT_FALSE(scales->expert_tokens.contains(layer));
        continue;
      }
      ++n_sparse;
      std::vector<int64_t> expected(static_cast<size_t>(config.n_experts));
      for (const int32_t id : dump_router_ids(name, layer)) ++expected[static_cast<size_t>(id)];
      EXPECT_EQ(scales->expert_tokens.at(layer), expected) << name << " layer " << layer;
      for (int64_t e = 0; e < config.n_experts; ++e)
        for (const char* part : {"gate_proj", "up_proj", "down_proj"})
          EXPECT_EQ(
              scales->modules.at(fmt::format("model.layers.{}.mlp.experts.{}.{}", layer, e, part))
                  .measured->n_rows,
              expected[static_cast<size_t>(e)]);
    }
    EXPECT_GT(n_sparse, 0);
    EXPECT_EQ(scales->text.n_tokens, 96);
    EXPECT_EQ(scales->text.n_sequences, 2);
    EXPECT_EQ(scales->modules.at("lm_head").measured->n_rows, 96);  // every token's, not the last
  }
}

TEST_F(CalibrateTest, LinearsThatShareAnInputShareNumbers) {
  load("modelopt-llama3-separate");
  const auto scales = run(dump_ids("modelopt-llama3-separate"));
  ASSERT_TRUE(scales.has_value()) << scales.error().text;
  const auto& at = scales->modules;
  const auto& q = *at.at("model.layers.0.self_attn.q_proj").measured;
  EXPECT_GT(q.amax, 0);
  EXPECT_LE(q.p99, q.p99_9);
  EXPECT_LE(q.p99_9, q.p99_99);
  EXPECT_LE(q.p99_99, q.amax);
  for (const char* other : {"k_proj", "v_proj"}) {
    const auto& m = *at.at(fmt::format("model.layers.0.self_attn.{}", other)).measured;
    EXPECT_EQ(m.amax, q.amax);
    EXPECT_EQ(m.rms, q.rms);
    EXPECT_EQ(m.p99_9, q.p99_9);
  }
  EXPECT_NE(at.at("model.layers.0.self_attn.o_proj").measured->amax, q.amax);
}

TEST_F(CalibrateTest, DoesNotDependOnThreads) {
  load("modelopt-qwen3-moe");
  const auto ids = dump_ids("modelopt-qwen3-moe");
  ThreadPool one(1);
  ThreadPool five(5);
  const auto a = calibrate(*model_, *checkpoint_, ids, {}, one);
  const auto b = calibrate(*model_, *checkpoint_, ids, {}, five);
  EXPECT_EQ(input_scales_text(*a), input_scales_text(*b));
}

TEST_F(CalibrateTest, WhatCannotBeCalibratedOn) {
  load("llama2");
  const auto error = [&](const std::vector<std::vector<int32_t>>& sequences, double headroom = 8) {
    CalibrateOptions options;
    options.headroom = headroom;
    return run(sequences, options).error();
  };
  EXPECT_EQ(error({}).code, Code::kInput);
  EXPECT_EQ(error({{1, 2}, {}}).code, Code::kInput);
  EXPECT_THAT(error({{1, 2}, {}}).text, HasSubstr("sequence 1 has 0 tokens"));
  EXPECT_EQ(error({std::vector<int32_t>(100000, 1)}).code, Code::kInput);
  EXPECT_THAT(error({{1, 2}, {3, -1}}).text, HasSubstr("token 1 of sequence 1 is -1"));
  for (const double headroom : {0.5, 0.0, -8.0, 2000.0, static_cast<double>(NAN)})
    EXPECT_EQ(error({{1, 2}}, headroom).code, Code::kUsage) << headroom;
  std::atomic<bool> cancel = true;
  CalibrateOptions cancelled;
  cancelled.cancel = &cancel;
  EXPECT_EQ(run({{1, 2}}, cancelled).error().code, Code::kCancelled);
}

}  // namespace
}  // namespace sextant
