// A model run a stage at a time is its forward pass: the same taps and logits, bit for bit.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::dump_ids;
using testing::golden_dir;

// Everything that was tapped, by tap, rows of all steps.
class AllTaps : public Probe {
 public:
  std::map<std::string, std::vector<float>> values;
  void visit(const Tap& tap, Mat<const float> x) override {
    std::vector<float>& to = values[fmt::format("{}.{}.{}", tap.layer, tap.name, tap.module)];
    for (int64_t r = 0; r < x.rows; ++r) to.insert(to.end(), x.row(r).begin(), x.row(r).end());
  }
};

std::shared_ptr<const Model> load(const std::string& name, bool stages_on_demand,
                                  const std::string& policy, ThreadPool& pool) {
  ModelOptions options;
  options.policies = {policy};
  options.stages_on_demand = stages_on_demand;
  auto model = Model::load(golden_dir(name), options, pool);
  EXPECT_TRUE(model.has_value()) << model.error().text;
  return *model;
}

// Logits of one sequence, every stage over all steps before the next one.
std::vector<float> run_stages(const Model& model, const std::vector<int32_t>& ids, int64_t chunk,
                              ThreadPool& pool, Probe& probe) {
  const auto n = static_cast<int64_t>(ids.size());
  const ModelConfig& config = model.config();
  const StepBuffersPtr buffers = model.make_buffers(chunk, chunk);
  std::vector<float> hidden(static_cast<size_t>(n * config.d_model));
  std::vector<float> logits(static_cast<size_t>(n * config.n_vocab));
  for (int64_t i = 0; i < model.n_stages(); ++i) {
    const auto stage = model.load_stage(i, pool);
    EXPECT_TRUE(stage.has_value()) << stage.error().text;
    KvLayout layout = model.kv_layout();
    layout.n_layers = 1;
    layout.first_layer = std::clamp<int64_t>(i - 1, 0, config.n_layers - 1);
    KvPool pages(layout, ceil_div(n, layout.page_tokens));
    KvSequence kv(pages);
    EXPECT_TRUE(kv.reserve(n));
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t rows = std::min(chunk, n - begin);
      const StepSeq seq{
          &kv, std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)), begin,
          rows};
      (*stage)->run({&seq, 1}, *buffers,
                    {hidden.data() + begin * config.d_model, rows, config.d_model},
                    {logits.data() + begin * config.n_vocab, rows, config.n_vocab}, &probe, pool);
    }
  }
  return logits;
}

TEST(Stages, AreTheForwardPassBitForBit) {
  ThreadPool pool(2);
  for (const std::string& name : testing::model_directories())
    for (const char* policy : {"a16", "f32", "a4:token"}) {
      const auto whole = load(name, false, policy, pool);
      const auto parts = load(name, true, policy, pool);
      const std::vector<int32_t> ids = dump_ids(name)[0];
      const auto n = static_cast<int64_t>(ids.size());
      // Dynamic NTK depends on how ids are fed: at once.
      const int64_t chunk = whole->config().rope.kind == RopeKind::kDynamic ? n : 19;
      AllTaps of_whole;
      AllTaps of_parts;
      EXPECT_EQ(testing::run_logits(*whole, ids, testing::chunks_of(n, chunk), pool, &of_whole),
                run_stages(*parts, ids, chunk, pool, of_parts))
          << name;
      EXPECT_EQ(of_whole.values, of_parts.values) << name;
    }
}

TEST(Stages, OnDemandNothingIsResidentAndStagesAddUp) {
  ThreadPool pool(2);
  for (const char* name : {"llama3", "modelopt-qwen3-moe", "qwen3-moe-mixed"}) {
    const auto whole = load(name, false, "a16", pool);
    const auto parts = load(name, true, "a16", pool);
    EXPECT_EQ(parts->weight_bytes(), 0);
    EXPECT_EQ(parts->kv_layout().dtype, whole->kv_layout().dtype);
    int64_t sum = 0;
    for (int64_t i = 0; i < parts->n_stages(); ++i)
      sum += (*parts->load_stage(i, pool))->weight_bytes();
    EXPECT_EQ(sum, whole->weight_bytes()) << name;
    EXPECT_GT(sum, 0);
  }
}

TEST(Stages, BindingAndPoliciesAreCheckedWithoutPacking) {
  ThreadPool pool(1);
  ModelOptions options;
  options.stages_on_demand = true;
  options.policies = {"nothing.like.this=f32"};
  const auto model = Model::load(golden_dir("llama3"), options, pool);
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, Code::kUsage);
}

}  // namespace
}  // namespace sextant
