// The checks that need statistics, each with data made to trip it alone; and that healthy data
// trips none. Expected verdicts come from nvfp4.md section 3.2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

#include "checkpoint/testing/fixture.h"
#include "doctor/check_list.h"
#include "doctor/diagnosis.h"
#include "doctor/engines.h"
#include "doctor/report.h"
#include "io/ordered_json.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kN = 128;
constexpr int64_t kK = 1024;  // 131072 codes: enough for every statistic

// A linear of Gaussian weights as ModelOpt writes it.
void add_quantized(testing::CheckpointFixture& fixture, const std::string& module, uint32_t seed,
                   float amax_factor = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> x(static_cast<size_t>(kN * kK));
  for (float& v : x) v = normal(random);
  const float amax = amax_of(x.data(), kN * kK) * amax_factor;
  const float g = nvfp4_multiplier(amax);
  std::vector<uint8_t> codes(static_cast<size_t>(kN * kK / 2));
  std::vector<uint8_t> scales(static_cast<size_t>(kN * kK / 16));
  for (int64_t block = 0; block < kN * kK / 16; ++block)
    nvfp4_quantize_block(Nvfp4Profile::kA, x.data() + 16 * block, 1.0F / g,
                         codes.data() + 8 * block, scales.data() + block);
  fixture.add(module + ".weight", "U8", {kN, kK / 2}, codes);
  fixture.add(module + ".weight_scale", "F8_E4M3", {kN, kK / 16}, scales);
  fixture.add_f32(module + ".weight_scale_2", {}, {g});
}

Diagnosis diagnosed(testing::CheckpointFixture& fixture, bool quick = false) {
  const auto checkpoint = Checkpoint::open(fixture.write());
  EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().text);
  ThreadPool pool(2);
  return diagnose(**checkpoint, {.quick = quick, .progress = {}}, pool);
}

std::vector<std::string> loud(const Diagnosis& d) {
  std::vector<std::string> out;
  for (const Finding& f : d.findings)
    if (f.severity != Severity::kNote) out.push_back(f.id + " " + f.slug);
  return out;
}

std::string layer(int i, const char* name) {
  return "model.layers." + std::to_string(i) + ".mlp." + name;
}

TEST(Diagnose, HealthyGaussianWeightsHaveNothing) {
  testing::CheckpointFixture fixture;
  for (int i = 0; i < 4; ++i)
    add_quantized(fixture, layer(i, "down_proj"), static_cast<uint32_t>(i));
  const Diagnosis d = diagnosed(fixture);
  EXPECT_EQ(d.verdict, Verdict::kHealthy) << text_report(d, {});
  EXPECT_EQ(d.convention.weight_global, "multiplier");
}

TEST(Diagnose, C4LostBlocksOfALargeLinearAreAnError) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1);
  auto& scales = fixture.tensor(layer(0, "down_proj") + ".weight_scale").bytes;
  for (size_t i = 0; i < scales.size() / 50; ++i) scales[i * 50] = 0;
  const Diagnosis d = diagnosed(fixture);
  ASSERT_THAT(loud(d), Contains("C4 lost-block"));
  EXPECT_EQ(d.findings[0].severity, Severity::kError);
  EXPECT_EQ(d.findings[0].index, (std::vector<int64_t>{0, 0}));
}

TEST(Diagnose, C5RowsOfZerosAreNamed) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1);
  auto& codes = fixture.tensor(layer(0, "down_proj") + ".weight").bytes;
  std::fill(codes.begin() + 5 * kK / 2, codes.begin() + 7 * kK / 2, 0);
  const Diagnosis d = diagnosed(fixture);
  ASSERT_THAT(loud(d), ::testing::ElementsAre("C5 zero-blocks"));
  EXPECT_THAT(d.findings[0].message, HasSubstr("2 whole rows, the first row 5"));
}

// A global scale made from a quarter of the true amax clips the largest blocks at 448.
TEST(Diagnose, C6TooSmallAGlobalScaleSaturates) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1, 0.25F);
  EXPECT_THAT(loud(diagnosed(fixture)), Contains("C6 saturated-scales"));
}

TEST(Diagnose, C7AGlobalScaleThreeTimesTooLargeReachesNoRecipesMaximum) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1, 3.0F);
  EXPECT_THAT(loud(diagnosed(fixture)), Contains("C7 no-recipe-maximum"));
}

TEST(Diagnose, C8HugeGlobalScaleMakesScalesSubnormal) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1, 30000.0F);
  EXPECT_THAT(loud(diagnosed(fixture)), Contains("C8 subnormal-scales"));
}

TEST(Diagnose, C9RandomBytesAreNotWeights) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1);
  std::mt19937 random(7);
  for (auto& byte : fixture.tensor(layer(0, "down_proj") + ".weight").bytes)
    byte = static_cast<uint8_t>(random());
  EXPECT_THAT(loud(diagnosed(fixture)), Contains("C9 random-codes"));
}

TEST(Diagnose, C10ColumnsOfDifferentKindAreMisaligned) {
  testing::CheckpointFixture fixture;
  add_quantized(fixture, layer(0, "down_proj"), 1);
  for (auto& byte : fixture.tensor(layer(0, "down_proj") + ".weight").bytes)
    byte = static_cast<uint8_t>((byte & 0x77) | (byte & 0x80));  // low nibbles lose their sign
  EXPECT_THAT(loud(diagnosed(fixture)), Contains("C10 nibbles-differ"));
}

// sqrt(64) * 1 = 8 bounds what the norm can give; 2688 * 0.01 = 26.9.
TEST(Diagnose, C11InputScaleBeyondItsNorm) {
  testing::CheckpointFixture fixture;
  fixture.add_linear("model.layers.0.self_attn.q_proj", 32, 64);
  fixture.add_f32("model.layers.0.self_attn.q_proj.input_scale", {}, {0.01F});
  fixture.add_bf16("model.layers.0.input_layernorm.weight", {64}, 1.0F);
  EXPECT_THAT(loud(diagnosed(fixture)), Contains("C11 input-scale-beyond-norm"));
  fixture.add_f32("model.layers.0.self_attn.q_proj.input_scale", {}, {4.0F / 2688});
  EXPECT_THAT(loud(diagnosed(fixture)), Not(Contains("C11 input-scale-beyond-norm")));
}

TEST(Diagnose, C12AndC13NameTheExpert) {
  testing::CheckpointFixture fixture;
  testing::add_f_moe(fixture);
  fixture.add_f32("model.layers.0.mlp.experts.3.up_proj.input_scale", {}, {0.5F / 2688});
  const Diagnosis d = diagnosed(fixture);
  EXPECT_THAT(loud(d), AllOf(Contains("C12 uncalibrated-expert"),
                             Contains("C13 expert-input-scales-spread")));
  for (const Finding& f : d.findings) {
    if (f.id == "C12") {
      EXPECT_EQ(f.expert, 3);
    }
  }
}

TEST(Diagnose, P10EveryScaleInverted) {
  testing::CheckpointFixture fixture;
  for (int i = 0; i < 4; ++i) {
    add_quantized(fixture, layer(i, "down_proj"), static_cast<uint32_t>(i));
    fixture.add_f32(layer(i, "down_proj") + ".weight_scale_2", {}, {12343.1035F});
  }
  EXPECT_THAT(loud(diagnosed(fixture, true)),
              ::testing::ElementsAre("P10 convention-contradicts-names"));
}

// What decides is the numbers, so that an engine's table can say what going by the name does.
TEST(Diagnose, AnInvertedFileIsReportedByItsNumbers) {
  testing::CheckpointFixture fixture;
  for (int i = 0; i < 4; ++i) {
    add_quantized(fixture, layer(i, "down_proj"), static_cast<uint32_t>(i));
    fixture.add_f32(layer(i, "down_proj") + ".weight_scale_2", {}, {12343.1035F});
  }
  fixture.write_file("config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  const auto checkpoint = Checkpoint::open(fixture.write());
  ASSERT_TRUE(checkpoint);
  ThreadPool pool(1);
  const Diagnosis d = diagnose(**checkpoint, {.quick = true, .progress = {}}, pool);
  EXPECT_EQ(d.convention.weight_global, "divisor");
  const auto predictions = predict("vllm", **checkpoint, d);
  ASSERT_TRUE(predictions);
  EXPECT_TRUE(std::any_of(predictions->begin(), predictions->end(), [](const EnginePrediction& p) {
    return p.effect.find("convention") != std::string::npos;
  })) << text_report("vllm", *predictions);
}

TEST(Diagnose, P11OneScaleInverted) {
  testing::CheckpointFixture fixture;
  for (int i = 0; i < 4; ++i)
    add_quantized(fixture, layer(i, "down_proj"), static_cast<uint32_t>(i));
  fixture.add_f32(layer(2, "down_proj") + ".weight_scale_2", {}, {12343.1035F});
  const Diagnosis d = diagnosed(fixture, true);
  ASSERT_THAT(loud(d), Contains("P11 mixed-conventions"));
  EXPECT_EQ(d.findings[0].layer, 2);
}

TEST(Diagnose, E2AnExpertThatIsNotThere) {
  testing::CheckpointFixture fixture;
  testing::add_f_moe(fixture);
  for (const char* part : {"weight", "weight_scale", "weight_scale_2", "input_scale"})
    fixture.remove(std::string("model.layers.0.mlp.experts.5.up_proj.") + part);
  const Diagnosis d = diagnosed(fixture);
  ASSERT_THAT(loud(d), Contains("E2 missing-expert"));
  EXPECT_EQ(d.findings[0].expert, 5);
}

TEST(Diagnose, F4NaNInANorm) {
  testing::CheckpointFixture fixture;
  testing::add_f_lin(fixture);
  std::vector<float> values(32, 1.0F);
  values[9] = NAN;
  fixture.add_f32("model.norm.weight", {32}, values);
  const Diagnosis d = diagnosed(fixture);
  ASSERT_THAT(loud(d), ::testing::ElementsAre("F4 non-finite-weight"));
  EXPECT_EQ(d.findings[0].index, (std::vector<int64_t>{9}));
}

// Sixteen numbers or fewer are weights like any others; only scales are judged elsewhere.
TEST(Diagnose, F4NaNInATinyMatrixAndInPreQuantScale) {
  testing::CheckpointFixture fixture;
  testing::add_f_lin(fixture);
  fixture.add_f32("model.layers.0.mlp.gate.weight", {2, 2}, {NAN, 1, 1, 1});
  std::vector<float> ones(32, 1.0F);
  ones[3] = INFINITY;
  fixture.add_f32("model.layers.0.mlp.down_proj.pre_quant_scale", {32}, ones);
  const Diagnosis d = diagnosed(fixture);
  ASSERT_THAT(loud(d), ::testing::ElementsAre("F4 non-finite-weight"));
  EXPECT_EQ(d.findings[0].instances.size(), 2U);
}

TEST(Diagnose, StacksOfExpertsAreJudgedAndWhatIsNoLinearIsNamed) {
  testing::CheckpointFixture fixture;
  fixture.fill("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", {2, 8, 1, 16}, 0x21);
  fixture.fill("model.layers.0.mlp.experts.gate_up_proj_scales", "U8", {2, 8, 1}, 127);
  fixture.fill("table", "I32", {4}, 1);
  const Diagnosis d = diagnosed(fixture);
  EXPECT_THAT(d.skipped, Contains(HasSubstr("1 tensors (16 bytes)")));
  EXPECT_EQ(d.linears.size(), 2U);
  EXPECT_EQ(d.linears[1].expert, 1);
  EXPECT_EQ(d.linears[1].statistics.unpack().n_codes, 8 * 32);
  EXPECT_DOUBLE_EQ(d.summary.bits_per_weight, 4.25);
}

TEST(Diagnose, F6ACheckpointWithoutTensorsIsNotHealthy) {
  testing::CheckpointFixture fixture;
  EXPECT_THAT(loud(diagnosed(fixture)), ::testing::ElementsAre("F6 no-tensors"));
}

// LayerNorm with a bias, 1 + w, norms that come after: their weights bound nothing.
TEST(Diagnose, C11IsSilentForFamiliesWhoseNormsAreOthers) {
  testing::CheckpointFixture fixture;
  fixture.add_linear("model.layers.0.self_attn.q_proj", 32, 64);
  fixture.add_f32("model.layers.0.self_attn.q_proj.input_scale", {}, {0.01F});
  fixture.add_bf16("model.layers.0.input_layernorm.weight", {64}, 1.0F);
  fixture.write_file("config.json", R"({"model_type": "nemotron", "num_hidden_layers": 1})");
  const auto checkpoint = Checkpoint::open(fixture.write());
  ASSERT_TRUE(checkpoint);
  ThreadPool pool(1);
  const Diagnosis d = diagnose(**checkpoint, {}, pool);
  EXPECT_THAT(loud(d), Not(Contains("C11 input-scale-beyond-norm")));
  EXPECT_THAT(d.skipped, Contains(HasSubstr("C11")));
}

// Every id and slug that any source of this folder or checkpoint/ writes has a row in the list.
TEST(CheckList, KnowsEverySlug) {
  std::set<std::pair<std::string, std::string>> rows;
  for (const CheckInfo& check : all_checks()) {
    EXPECT_FALSE(check.threshold.empty() || check.reason.empty()) << check.slug;
    EXPECT_TRUE(rows.emplace(check.id, check.slug).second) << check.slug;
  }
  EXPECT_NE(find_check("C1", "nan-block-scale"), nullptr);
  EXPECT_EQ(find_check("C1", "zero-blocks"), nullptr);
}

TEST(JsonReport, HasTheContractsMembers) {
  testing::CheckpointFixture fixture;
  testing::add_f_lin(fixture);
  const Json json = json_report(diagnosed(fixture));
  for (const char* name :
       {"version", "model", "verdict", "dialect", "convention", "summary", "findings"})
    EXPECT_TRUE(json.contains(name)) << name;
  EXPECT_EQ(json["verdict"], "healthy");
  EXPECT_EQ(json["summary"]["linears"]["nvfp4"], 1);
}

}  // namespace
}  // namespace sextant
