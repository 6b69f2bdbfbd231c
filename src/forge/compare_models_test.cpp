// Two models layer by layer: itself, its quantized copy, planted faults, against forward passes and
// arithmetic by hand.
#include "forge/compare_models.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.h"
#include "forge/evaluate.h"
#include "forge/quantize.h"
#include "model/testing/golden.h"
#include "quant/bf16.h"

namespace sextant {
namespace {

using testing::EditedCheckpoint;
using ::testing::ElementsAre;
using testing::golden_dir;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(DifferenceOfRows, ByHand) {
  // |a| = 5, |b| = 3, ab = 9, |b - a| = 4.
  const DifferenceOfRows d = compare_row(std::vector<float>{3, 4}, std::vector<float>{3, 0}).sums;
  EXPECT_DOUBLE_EQ(d.cosine(), 0.6);
  EXPECT_DOUBLE_EQ(d.rms_ratio(), 0.6);
  EXPECT_DOUBLE_EQ(d.relative_l2(), 0.8);
  EXPECT_EQ(d.n_different, 1);
  const DifferenceOfRows zero = compare_row(std::vector<float>{0}, std::vector<float>{0}).sums;
  EXPECT_EQ(zero.cosine(), 1);
  EXPECT_EQ(zero.rms_ratio(), 1);
  EXPECT_EQ(zero.relative_l2(), 0);
  const DifferenceOfRows dead = compare_row(std::vector<float>{2}, std::vector<float>{0}).sums;
  EXPECT_EQ(dead.cosine(), 0);
  EXPECT_EQ(dead.rms_ratio(), 0);
  EXPECT_EQ(dead.relative_l2(), 1);
  const DifferenceOfRows new_there = compare_row(std::vector<float>{0}, std::vector<float>{2}).sums;
  EXPECT_EQ(new_there.rms_ratio(), kInf);
  EXPECT_EQ(new_there.relative_l2(), kInf);
}

TEST(DifferenceOfRows, WhatIsNotFiniteIsCountedAndLeftOut) {
  const RowDifference d = compare_row(std::vector<float>{kNaN, 1, kInf, kNaN, 2},
                                      std::vector<float>{kNaN, 1, -kInf, 5, kInf});
  EXPECT_EQ(d.sums.n_bad_a, 3);
  EXPECT_EQ(d.sums.n_bad_b, 3);
  EXPECT_EQ(d.sums.n_different, 3);  // two that are NaN are the same
  EXPECT_EQ(d.first_different, 2);
  EXPECT_EQ(d.first_bad, 0);
  EXPECT_EQ(d.sums.relative_l2(), 0);
}

TEST(DifferenceOfRows, NothingFiniteIsNoAgreement) {
  const RowDifference d =
      compare_row(std::vector<float>{kNaN, kInf}, std::vector<float>{kNaN, kInf});
  EXPECT_TRUE(std::isnan(d.sums.cosine()));
  EXPECT_TRUE(std::isnan(d.sums.rms_ratio()));
  EXPECT_TRUE(std::isnan(d.sums.relative_l2()));
}

// Expert 4 of A ran for rows 0, 2 and 5, of B for rows 2, 3 and 5: two are in both.
TEST(StageComparison, RowsThatOnlyOneOfThemHasAreLeftOut) {
  ThreadPool pool(1);
  StageComparison comparison(pool);
  const std::string module = "model.layers.0.mlp.experts.4.up_proj";
  const auto visit = [&](Probe& probe, const std::vector<float>& values,
                         const std::vector<int32_t>& rows) {
    const Mat<const float> x(values.data(), 3, 1);
    probe.visit({"input", 0, module, rows}, x);
    probe.visit({"up", 0, module, rows}, x);
    probe.visit({"mlp_act", 0, {}, rows}, x);
  };
  comparison.begin_step(100);
  visit(comparison.recorder(), {1, 2, 3}, {0, 2, 5});
  const std::vector<int32_t> ids_a = {4, 1, 4, 2};
  comparison.recorder().visit_ids({"router_ids", 0, {}, {}}, {ids_a.data(), 2, 2});
  visit(comparison.comparer(), {2, 9, 6}, {2, 3, 5});
  const std::vector<int32_t> ids_b = {1, 4, 4, 3};
  comparison.comparer().visit_ids({"router_ids", 0, {}, {}}, {ids_b.data(), 2, 2});
  const std::vector<ComparedTap> taps = comparison.take();
  ASSERT_EQ(taps.size(), 2);
  EXPECT_EQ(taps[0].name, "up");
  EXPECT_EQ(taps[1].name, "mlp_act");
  for (const ComparedTap& tap : taps) {
    EXPECT_EQ(tap.expert, 4);
    EXPECT_EQ(tap.n_rows, 2);
    // Rows 2 and 5: (2, 3) against (2, 6).
    EXPECT_DOUBLE_EQ(tap.difference.relative_l2(), std::sqrt(9.0 / 13.0));
    ASSERT_TRUE(tap.first_different.has_value());
    EXPECT_EQ(tap.first_different->position, 105);
    EXPECT_EQ(tap.first_different->row, 2);
  }
  EXPECT_EQ(comparison.same_experts(), 0.75);
}

// nvfp4.md section 6.2: cosines of 0.99 for W4A16 and 0.98 for W4A4 against BF16.
TEST(ExplainedError, IsThatOfTheTable) {
  const auto cosine = [](double square) { return 1 / std::sqrt(1 + square); };
  EXPECT_NEAR(cosine(explained_by_formats(Scheme::kNvfp4, Scheme::kF32)), 0.99, 5e-5);
  EXPECT_NEAR(cosine(2 * explained_by_formats(Scheme::kNvfp4, Scheme::kF32)), 0.98, 5e-4);
  EXPECT_NEAR(cosine(explained_by_formats(Scheme::kBf16, Scheme::kNvfp4)), 0.99, 5e-5);
  EXPECT_EQ(explained_by_formats(Scheme::kNvfp4, Scheme::kNvfp4), 0);
  const auto policy = [](Act act, Weights weights) {
    LinearPolicy out;
    out.act = act;
    out.weights = weights;
    return out;
  };
  const LinearPolicy a16 = policy(Act::kA16, Weights::kStored);
  EXPECT_EQ(explained_by_policies(a16, a16), 0);
  // BF16 rounding moves a value by at most 2^-8 of it.
  EXPECT_EQ(explained_by_policies(policy(Act::kF32, Weights::kStored), a16), 0x1p-16);
  EXPECT_EQ(explained_by_policies(policy(Act::kA16, Weights::kBf16), a16), 0x1p-16);
  const LinearPolicy a4 = policy(Act::kA4Static, Weights::kStored);
  EXPECT_NEAR(cosine(explained_by_policies(a16, a4)), 0.99, 5e-5);
  EXPECT_EQ(explained_by_policies(a4, a4), 0);
}

struct Side {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Checkpoint> checkpoint;
};

class CompareModelsTest : public ::testing::Test {
 protected:
  Side load(const std::filesystem::path& path, const std::vector<std::string>& policies = {}) {
    Side side;
    side.checkpoint = std::move(*Checkpoint::open(path));
    ModelOptions options;
    options.policies = policies;
    options.stages_on_demand = true;
    auto model = Model::load(path, options, pool_);
    EXPECT_TRUE(model.has_value()) << model.error().text;
    side.model = *model;
    return side;
  }

  CompareReport compare(const Side& a, const Side& b, const std::vector<int32_t>& ids,
                        int64_t window = 40) {
    CompareModelsOptions options;
    options.window = window;
    const auto report =
        compare_models({*a.model, *a.checkpoint}, {*b.model, *b.checkpoint}, ids, options, pool_);
    EXPECT_TRUE(report.has_value()) << report.error().text;
    return *report;
  }

  // A golden model with something changed.
  std::filesystem::path edited(const std::string& name,
                               const std::function<void(EditedCheckpoint&)>& edit) {
    EditedCheckpoint checkpoint(name);
    edit(checkpoint);
    return written(checkpoint);
  }
  std::filesystem::path written(const EditedCheckpoint& checkpoint) {
    const std::filesystem::path to = dir_.path() / fmt::format("m{}", n_written_++);
    checkpoint.write(to);
    return to;
  }
  std::filesystem::path quantized(const std::filesystem::path& from) {
    const std::filesystem::path to = dir_.path() / fmt::format("q{}", n_written_++);
    const auto source = std::move(*Checkpoint::open(from));
    const auto report = quantize(*source, to, {}, pool_);
    EXPECT_TRUE(report.has_value()) << report.error().text;
    return to;
  }

  ThreadPool pool_{2};
  testing::TempDir dir_;
  int n_written_ = 0;
};

std::vector<int32_t> ids_of(const std::string& name) {
  std::vector<int32_t> ids;
  for (const auto& sequence : testing::dump_ids(name))
    ids.insert(ids.end(), sequence.begin(), sequence.end());
  return ids;
}

void scale_bf16(testing::TestTensor& tensor, float factor) {
  auto* values = reinterpret_cast<uint16_t*>(tensor.bytes.data());
  for (size_t i = 0; i < tensor.bytes.size() / 2; ++i)
    values[i] = f32_to_bf16(bf16_to_f32(values[i]) * factor);
}

// nullptr where there is none.
const Divergence* first_of(const CompareReport& report) {
  const auto all = report.divergences();
  return all.empty() ? nullptr : all.front();
}

TEST_F(CompareModelsTest, AModelAgainstItselfIsExactlyEqualEverywhere) {
  for (const std::string& name : testing::model_directories()) {
    const Side side = load(golden_dir(name));
    const std::vector<int32_t> ids = ids_of(name);
    const CompareReport report = compare(side, side, ids);
    EXPECT_FALSE(report.first_difference) << name;
    EXPECT_FALSE(report.is_bad);
    EXPECT_EQ(static_cast<int64_t>(report.stages.size()), side.model->config().n_layers + 2);
    for (const StageReport& stage : report.stages) {
      EXPECT_FALSE(stage.divergence);
      EXPECT_GE(stage.taps.size(), 1);
      for (const ComparedTap& tap : stage.taps) {
        EXPECT_EQ(tap.difference.n_different, 0) << name << " " << tap.name;
        EXPECT_EQ(tap.difference.relative_l2(), 0);
        EXPECT_EQ(tap.difference.cosine(), 1);
        if (!tap.expert) {
          EXPECT_EQ(tap.n_rows, report.scores.n_tokens) << tap.name;
        }
      }
      EXPECT_EQ(stage.drift.n_different, 0);
      EXPECT_EQ(stage.same_experts.value_or(1), 1);
    }
    EXPECT_EQ(report.scores.against->mean_kl, 0);
    EXPECT_EQ(report.scores.against->top1_agreement, 1);
    EXPECT_EQ(report.scores.perplexity, report.scores.against->perplexity);
  }
}

// The end is that of eval, which runs whole models; drift is that of two forward passes.
TEST_F(CompareModelsTest, TheStreamsAreThoseOfWholeModels) {
  class Hidden : public Probe {
   public:
    std::vector<std::vector<float>> layers;
    void visit(const Tap& tap, Mat<const float> x) override {
      if (tap.name == "hidden") layers.emplace_back(x.data, x.data + x.rows * x.cols);
    }
  };
  for (const std::string name : {"llama3", "qwen3-moe"}) {
    const std::filesystem::path copy = quantized(golden_dir(name));
    const std::vector<int32_t> ids = ids_of(name);
    const CompareReport report = compare(load(golden_dir(name)), load(copy), ids);
    const auto a = *Model::load(golden_dir(name), {}, pool_);
    const auto b = *Model::load(copy, {}, pool_);
    EvalOptions eval;
    eval.window = 40;
    const EvalResult scores = *evaluate(*b, a.get(), ids, eval, pool_);
    EXPECT_EQ(report.scores.window_nll_sum, scores.window_nll_sum);
    EXPECT_EQ(report.scores.against->mean_kl, scores.against->mean_kl);
    EXPECT_EQ(report.scores.against->top1_agreement, scores.against->top1_agreement);
    EXPECT_EQ(report.scores.n_scored, scores.n_scored);

    const std::vector<int32_t> first(ids.begin(), ids.begin() + 40);
    const CompareReport of_first = compare(load(golden_dir(name)), load(copy), first);
    Hidden of_a;
    Hidden of_b;
    testing::run_logits(*a, first, {40}, pool_, &of_a);
    testing::run_logits(*b, first, {40}, pool_, &of_b);
    for (size_t i = 0; i < of_a.layers.size(); ++i)
      EXPECT_NEAR(of_first.stages[i + 1].drift.cosine(),
                  testing::cosine(of_a.layers[i], of_b.layers[i]), 1e-12);
  }
}

// Of 4-bit weights made from A's: within the table, named by nobody; tensors that stay are equal.
TEST_F(CompareModelsTest, AQuantizedCopyIsExplained) {
  for (const std::string name : {"llama2", "llama3", "mistral", "qwen2", "qwen3", "qwen3-moe"}) {
    const CompareReport report =
        compare(load(golden_dir(name)), load(quantized(golden_dir(name))), ids_of(name));
    EXPECT_EQ(first_of(report), nullptr) << name << " " << first_of(report)->cause.message;
    ASSERT_TRUE(report.first_difference.has_value());
    EXPECT_EQ(report.first_difference->tap.name, "q");
    for (const StageReport& stage : report.stages)
      for (const ComparedTap& tap : stage.taps) {
        if (tap.name == "embed" || tap.name == "attn_in" || tap.name == "norm" ||
            tap.name == "logits") {
          EXPECT_EQ(tap.difference.n_different, 0) << tap.name;
        }
        // nvfp4.md section 6.2 has 0.994 to 0.997, for K = 1024; these are less wide.
        if (tap.name == "q" || tap.name == "k" || tap.name == "v") {
          EXPECT_GT(tap.difference.cosine(), 0.992) << name;
          EXPECT_LT(tap.difference.cosine(), 0.998) << name;
        }
      }
    EXPECT_GT(report.scores.against->mean_kl, 0);
  }
}

TEST_F(CompareModelsTest, TwoPoliciesAreExplained) {
  for (const std::string name : {"llama3", "modelopt-llama3-separate", "modelopt-qwen3-moe"})
    for (const std::vector<std::string>& policies :
         {std::vector<std::string>{"a16"}, {"f32,weights=bf16"}, {"f32", "*.mlp.*=a16"}}) {
      const CompareReport report =
          compare(load(golden_dir(name), {"f32"}), load(golden_dir(name), policies), ids_of(name));
      EXPECT_EQ(first_of(report), nullptr) << name;
      // Of free streams, where a rounding may choose another expert; 0.3 and more of 4-bit weights.
      EXPECT_LT(report.scores.against->mean_kl, 0.02);
    }
}

TEST_F(CompareModelsTest, AFactorIsNamedWithItsTensorInTheSameFormat) {
  for (const std::string name : {"llama2", "qwen3-moe"}) {
    const Side a = load(golden_dir(name));
    struct Plant {
      std::string tensor, tap, kind;
      int64_t stage;
    };
    std::vector<Plant> plants = {
        {"model.embed_tokens.weight", "embed", "embedding", 0},
        {"model.layers.0.input_layernorm.weight", "attn_in", "norm", 1},
        {"model.layers.1.self_attn.v_proj.weight", "v", "weight", 2},
        {"model.layers.1.self_attn.o_proj.weight", "o", "weight", 2},
        {"model.layers.0.post_attention_layernorm.weight", "mlp_in", "norm", 1},
        {"model.norm.weight", "norm", "norm", a.model->n_stages() - 1}};
    if (name == "llama2") {
      plants.push_back({"model.layers.1.mlp.down_proj.weight", "down", "weight", 2});
    } else {
      plants.push_back({"model.layers.1.mlp.gate.weight", "router", "weight", 2});
      plants.push_back({"model.layers.1.mlp.experts.3.up_proj.weight", "up", "weight", 2});
    }
    for (const Plant& plant : plants) {
      const Side b = load(edited(
          name, [&](EditedCheckpoint& c) { scale_bf16(c.tensors.at(plant.tensor), 1.25F); }));
      const CompareReport report = compare(a, b, ids_of(name));
      ASSERT_NE(first_of(report), nullptr) << plant.tensor;
      const Divergence& found = *first_of(report);
      EXPECT_EQ(found.tap.name, plant.tap);
      EXPECT_EQ(found.ratio, "1.25");
      EXPECT_EQ(found.cause.ratio, "1.25");
      EXPECT_EQ(found.cause.kind, plant.kind);
      EXPECT_THAT(found.cause.tensors, ElementsAre(plant.tensor));
      EXPECT_EQ(report.first_difference->tap.name, plant.tap);
      // A's input at every stage: what is wrong in one is not in the others.
      for (const StageReport& stage : report.stages)
        EXPECT_EQ(stage.divergence.has_value(), stage.stage == plant.stage) << plant.tensor;
    }
  }
}

// Element [3, 5] alone, in a tensor of which the other rows are equal.
TEST_F(CompareModelsTest, OneElementIsNamed) {
  const std::string tensor = "model.layers.1.mlp.up_proj.weight";
  const Side a = load(golden_dir("llama2"));
  const int64_t at = 2 * (3 * a.model->config().d_model + 5);
  const auto with = [&](const std::string& bytes) {
    return edited("llama2", [&](EditedCheckpoint& c) {
      c.tensors.at(tensor).bytes.replace(static_cast<size_t>(at), 2, bytes);
    });
  };
  const CompareReport small = compare(a, load(with("\x80\x3F")), ids_of("llama2"));  // 1.0
  ASSERT_TRUE(first_of(small) != nullptr);
  EXPECT_THAT(first_of(small)->cause.tensors, ElementsAre(tensor));
  EXPECT_THAT(first_of(small)->cause.index, ElementsAre(3, 5));
  EXPECT_EQ(first_of(small)->cause.value_b, 1.0);
  EXPECT_EQ(first_of(small)->tap.first_different->column, 3);
  EXPECT_THAT(first_of(small)->cause.message, HasSubstr("1 of 10240 elements differ"));

  const CompareReport nan = compare(a, load(with("\xC0\x7F")), ids_of("llama2"));
  EXPECT_TRUE(nan.is_bad);
  EXPECT_THAT(first_of(nan)->cause.tensors, ElementsAre(tensor));
  EXPECT_THAT(first_of(nan)->cause.index, ElementsAre(3, 5));
  EXPECT_EQ(first_of(nan)->cause.side, 'b');
  EXPECT_THAT(first_of(nan)->cause.message, HasSubstr("byte"));
  EXPECT_TRUE(std::isnan(nan.scores.against->mean_kl));
  EXPECT_FALSE(check_eval_gates(nan.scores, std::nullopt, 1e9).has_value());
  // Against itself it is not identical: what is not finite stands out on both sides alike.
  const Side bad = load(with("\xC0\x7F"));
  const CompareReport both = compare(bad, bad, ids_of("llama2"));
  EXPECT_TRUE(both.is_bad);
  ASSERT_FALSE(both.divergences().empty());
  EXPECT_THAT(both.divergences().front()->cause.tensors, ElementsAre(tensor));
  // The other way round it is A's.
  const CompareReport of_a = compare(load(with("\xC0\x7F")), a, ids_of("llama2"));
  EXPECT_TRUE(of_a.is_bad);
  EXPECT_EQ(first_of(of_a)->cause.side, 'a');
  EXPECT_THAT(first_of(of_a)->cause.tensors, ElementsAre(tensor));
}

// A BF16 model against its NVFP4 copy whose scales were written wrong.
TEST_F(CompareModelsTest, AScaleThatIsOffIsNamedAcrossFormats) {
  const std::string module = "model.layers.1.self_attn.o_proj";
  const std::filesystem::path copy = quantized(golden_dir("llama2"));
  const Side a = load(golden_dir("llama2"));
  for (const auto& [factor, name] : {std::pair(2.0F, "2"), {0.25F, "1/4"}, {1.25F, "1.25"}}) {
    EditedCheckpoint c(copy.string());
    auto& scale = c.tensors.at(module + ".weight_scale_2");
    float value = 0;
    std::memcpy(&value, scale.bytes.data(), sizeof(value));
    value *= factor;
    std::memcpy(scale.bytes.data(), &value, sizeof(value));
    const CompareReport report = compare(a, load(written(c)), ids_of("llama2"));
    ASSERT_NE(first_of(report), nullptr);
    const Divergence& found = *first_of(report);
    EXPECT_EQ(found.tap.module, module);
    EXPECT_EQ(found.ratio, name);
    EXPECT_EQ(found.cause.kind, "global-scale");
    EXPECT_EQ(found.cause.ratio, name);
    EXPECT_THAT(found.cause.tensors, ElementsAre(module + ".weight_scale_2"));
  }
}

TEST_F(CompareModelsTest, AConfigThatDiffersIsNamed) {
  const Side a = load(golden_dir("llama2"));
  const auto cause = [&](const char* field, double value) {
    const Side b = load(edited("llama2", [&](EditedCheckpoint& c) { c.config[field] = value; }));
    const CompareReport report = compare(a, b, ids_of("llama2"));
    EXPECT_NE(first_of(report), nullptr) << field;
    return first_of(report)->tap.name + " " + first_of(report)->cause.kind + " " +
           first_of(report)->cause.message;
  };
  EXPECT_THAT(cause("rope_theta", 500000.0), HasSubstr("q_rope config"));
  EXPECT_THAT(cause("rms_norm_eps", 0.05), HasSubstr("rms_norm_eps"));
}

// An expert of layer 1 that only B's own tokens reach: B's layer 0 sends them elsewhere.
TEST_F(CompareModelsTest, ANaNThatOnlyTheOwnStreamMeetsIsNamed) {
  class Reached : public Probe {
   public:
    std::set<std::string> modules;
    void visit(const Tap& tap, Mat<const float>) override {
      if (tap.name == "up" && tap.layer == 1) modules.insert(std::string(tap.module));
    }
  };
  const std::string strong = "model.layers.0.self_attn.o_proj.weight";
  EditedCheckpoint c("qwen3-moe");
  scale_bf16(c.tensors.at(strong), 8.0F);
  const Side a = load(golden_dir("qwen3-moe"));
  const std::filesystem::path other = written(c);
  const auto whole = *Model::load(other, {}, pool_);
  for (int32_t first = 1; first < 60; ++first) {
    const std::vector<int32_t> ids = {first, 2 * first};
    const CompareReport healthy = compare(a, load(other), ids);
    Reached reached;
    testing::run_logits(*whole, ids, {2}, pool_, &reached);
    for (const ComparedTap& tap : healthy.stages[2].taps) reached.modules.erase(tap.module);
    if (reached.modules.empty()) continue;
    const std::string tensor = *reached.modules.begin() + ".weight";
    c.tensors.at(tensor).bytes.replace(0, 2, "\xC0\x7F");
    const CompareReport report = compare(a, load(written(c)), ids);
    EXPECT_TRUE(report.is_bad);
    ASSERT_NE(first_of(report), nullptr);
    EXPECT_TRUE(first_of(report)->in_own_stream);
    EXPECT_EQ(first_of(report)->tap.name, "up");
    EXPECT_THAT(first_of(report)->cause.tensors, ElementsAre(tensor));
    EXPECT_EQ(first_of(report)->cause.side, 'b');
    EXPECT_THAT(report.divergences().back()->cause.tensors, ElementsAre(strong));
    return;
  }
  FAIL() << "no expert was reached by one stream only";
}

// Counts the stages of a model that are alive.
class CountedModel : public Model {
 public:
  explicit CountedModel(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  const ModelConfig& config() const override { return model_->config(); }
  const Policy& policy() const override { return model_->policy(); }
  const Ops& ops() const override { return model_->ops(); }
  const std::vector<Finding>& findings() const override { return model_->findings(); }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  int64_t bytes_per_token() const override { return model_->bytes_per_token(); }
  KvLayout kv_layout() const override { return model_->kv_layout(); }
  const Linear* linear(std::string_view module) const override { return model_->linear(module); }
  LinearPolicy linear_policy(std::string_view module) const override {
    return model_->linear_policy(module);
  }
  StepBuffersPtr make_buffers(int64_t max_tokens, int64_t max_logit_rows) const override {
    return model_->make_buffers(max_tokens, max_logit_rows);
  }
  void forward(std::span<const StepSeq>, StepBuffers&, Mat<float>, Probe*,
               ThreadPool&) const override {
    ADD_FAILURE() << "the whole model was run";
  }
  Result<std::unique_ptr<const Stage>> load_stage(int64_t stage, ThreadPool& pool) const override {
    SX_ASSIGN(auto loaded, model_->load_stage(stage, pool));
    EXPECT_EQ(n_alive_, 0) << "stage " << stage;
    ++n_loaded_;
    return std::make_unique<CountedStage>(std::move(loaded), n_alive_);
  }
  mutable int n_alive_ = 0;
  mutable int n_loaded_ = 0;

 private:
  class CountedStage : public Stage {
   public:
    CountedStage(std::unique_ptr<const Stage> stage, int& n_alive)
        : stage_(std::move(stage)), n_alive_(n_alive) {
      ++n_alive_;
    }
    ~CountedStage() override { --n_alive_; }
    CountedStage(const CountedStage&) = delete;
    CountedStage& operator=(const CountedStage&) = delete;
    int64_t weight_bytes() const override { return stage_->weight_bytes(); }
    void run(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> hidden,
             Mat<float> logits, Probe* probe, ThreadPool& pool) const override {
      stage_->run(seqs, buffers, hidden, logits, probe, pool);
    }

   private:
    std::unique_ptr<const Stage> stage_;
    int& n_alive_;
  };
  std::shared_ptr<const Model> model_;
};

TEST_F(CompareModelsTest, OneStageOfEachIsInMemory) {
  const Side a = load(golden_dir("llama2"));
  const Side b = load(golden_dir("llama2"), {"f32"});
  const CountedModel counted_a(a.model);
  const CountedModel counted_b(b.model);
  CompareModelsOptions options;
  options.window = 40;
  const auto report = compare_models({counted_a, *a.checkpoint}, {counted_b, *b.checkpoint},
                                     ids_of("llama2"), options, pool_);
  ASSERT_TRUE(report.has_value()) << report.error().text;
  EXPECT_EQ(a.model->weight_bytes(), 0);
  for (const CountedModel* model : {&counted_a, &counted_b}) {
    EXPECT_EQ(model->n_alive_, 0);
    EXPECT_EQ(model->n_loaded_, 5);  // each stage once: 3 layers, the embedding, the head
  }
}

TEST_F(CompareModelsTest, WhatCannotBeCompared) {
  const Side a = load(golden_dir("llama2"));
  const Side other = load(golden_dir("llama3"));
  const std::vector<int32_t> ids = ids_of("llama2");
  const auto error = [&](const Side& b, const std::vector<int32_t>& tokens,
                         CompareModelsOptions options = {}) {
    if (options.window == 512) options.window = 40;
    const auto report = compare_models({*a.model, *a.checkpoint}, {*b.model, *b.checkpoint}, tokens,
                                       options, pool_);
    EXPECT_FALSE(report.has_value());
    return report.has_value() ? Error() : report.error();
  };
  EXPECT_EQ(error(other, ids).code, Code::kInput);
  EXPECT_THAT(error(other, ids).text, HasSubstr("3 and 2 as num_hidden_layers"));
  EXPECT_EQ(error(a, {1}).code, Code::kInput);
  EXPECT_EQ(error(a, {1, 320}).code, Code::kInput);
  EXPECT_EQ(error(a, ids, {.window = 1, .cancel = {}, .progress = {}}).code, Code::kUsage);
  EXPECT_EQ(error(a, ids, {.window = 1000, .cancel = {}, .progress = {}}).code, Code::kUsage);
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(error(a, ids, {.window = 40, .cancel = &cancel, .progress = {}}).code,
            Code::kCancelled);
}

// A bound on windows leaves the rest of the ids out.
TEST_F(CompareModelsTest, OnlyTheFirstWindowsAreRead) {
  const Side a = load(golden_dir("llama2"));
  const std::vector<int32_t> ids = ids_of("llama2");
  CompareModelsOptions options;
  options.window = 10;
  options.max_windows = 2;
  const auto report =
      compare_models({*a.model, *a.checkpoint}, {*a.model, *a.checkpoint}, ids, options, pool_);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->scores.n_tokens, 20);
  EXPECT_EQ(report->scores.n_scored, 18);
  EXPECT_EQ(report->stages[1].taps[0].n_rows, 20);
}

}  // namespace
}  // namespace sextant
