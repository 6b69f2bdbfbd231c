// Predictions of `doctor --engine`. Expected effects come from docs/nvfp4.md and the issues that
// the tables cite; ratios from the cases' numbers.
#include "doctor/engines.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"
#include "doctor/engine_facts.h"
#include "doctor/engine_table.h"

namespace sextant {
namespace {

using testing::add_f_lin;
using testing::add_f_lin_ct;
using testing::add_f_moe;
using testing::CheckpointFixture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::opened;

constexpr char kLlama[] = R"({"architectures": ["LlamaForCausalLM"]})";
constexpr char kQwenMoe[] = R"({"architectures": ["Qwen3MoeForCausalLM"],
  "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})";
constexpr char kDown[] = "model.layers.0.mlp.down_proj";

std::vector<EnginePrediction> predicted(std::string_view engine, const Checkpoint& checkpoint,
                                        const Diagnosis& diagnosis = {}) {
  auto result = predict(engine, checkpoint, diagnosis);
  if (result) return std::move(*result);
  ADD_FAILURE() << result.error().text;
  return {};
}

// The first prediction with this effect, or a failed test.
EnginePrediction with_effect(const std::vector<EnginePrediction>& all, std::string_view effect) {
  std::string found;
  for (const EnginePrediction& p : all) {
    if (p.effect == effect) return p;
    found += p.effect + ", ";
  }
  ADD_FAILURE() << "no " << effect << " among " << found;
  return {};
}
bool has_effect(const std::vector<EnginePrediction>& all, std::string_view effect) {
  return std::any_of(all.begin(), all.end(),
                     [&](const EnginePrediction& p) { return p.effect == effect; });
}

// With so many block scales of each byte.
LinearSummary nvfp4_summary(const std::string& module,
                            const std::map<size_t, int64_t>& scale_bytes) {
  CodeStatistics statistics;
  for (const auto& [byte, n] : scale_bytes) {
    statistics.scale_bytes[byte] = n;
    statistics.n_blocks += n;
  }
  LinearSummary linear;
  linear.module = module;
  linear.scheme = Scheme::kNvfp4;
  linear.statistics = statistics;
  return linear;
}

TEST(Engines, SixAreBuiltIn) {
  EXPECT_THAT(engine_names(),
              ElementsAre("vllm", "sglang", "trtllm", "llama.cpp", "transformers", "sextant"));
}

TEST(Engines, EveryLineHasASourceAndCoversFourArchitectures) {
  for (const EmbeddedTable& embedded : embedded_engine_tables()) {
    const auto table = parse_engine_table(embedded.text, embedded.engine);
    ASSERT_TRUE(table) << table.error().text;
    EXPECT_EQ(table->engine, embedded.engine);
    EXPECT_FALSE(table->lines.empty());
    for (const EngineLine& line : table->lines) EXPECT_FALSE(line.source.empty());
    for (const char* family : {"Llama", "Qwen3-MoE", "DeepSeek-V3", "DeepSeek-V4"})
      EXPECT_EQ(table->families.count(family), 1U) << embedded.engine << " " << family;
  }
}

TEST(Engines, AnUnknownEngineIsUsage) {
  CheckpointFixture f;
  add_f_lin(f);
  const auto checkpoint = opened(f.write());
  const auto result = predict("exllama", *checkpoint, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kUsage);
  EXPECT_THAT(result.error().text, HasSubstr("vllm, sglang"));
}

TEST(Engines, AnUnknownArchitectureIsOnePredictionThatIsNotKnown) {
  for (const char* config : {R"({"architectures": ["MambaForCausalLM"]})", ""}) {
    CheckpointFixture f;
    add_f_lin(f);
    if (*config != '\0') f.write_file("config.json", config);
    const auto checkpoint = opened(f.write());
    const auto all = predicted("vllm", *checkpoint);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].effect, "not known");
    EXPECT_EQ(all[0].symptom, "not known");
    EXPECT_FALSE(all[0].source.empty());
  }
}

// 4.83e-05 / 3.85e-05 = 1.2545; 3.85e-05 / 4.83e-05 = 0.7971.
TEST(Engines, C020ExpertsOfVllmTakeTheGatesScaleAndTensorRtTheLarger) {
  CheckpointFixture f;
  add_f_moe(f);
  const std::string expert = "model.layers.0.mlp.experts.0.";
  f.add_f32(expert + "gate_proj.weight_scale_2", {}, {3.85e-05F});
  f.add_f32(expert + "up_proj.weight_scale_2", {}, {4.83e-05F});
  f.write_file("config.json", kQwenMoe);
  const auto checkpoint = opened(f.write());
  const auto vllm = with_effect(predicted("vllm", *checkpoint), "merged, first wins");
  EXPECT_EQ(vllm.symptom, "gain x 0.7971");
  EXPECT_THAT(vllm.message, HasSubstr("1.2545"));
  EXPECT_EQ(vllm.tensor, expert + "up_proj.weight_scale_2");
  EXPECT_EQ(vllm.first_layer, 0);
  EXPECT_EQ(vllm.count, 1);
  const auto trtllm = with_effect(predicted("trtllm", *checkpoint), "merged by max");
  EXPECT_EQ(trtllm.symptom, "gain x 1.2545");
  EXPECT_EQ(trtllm.tensor, expert + "gate_proj.weight_scale_2");
  EXPECT_FALSE(has_effect(predicted("llama.cpp", *checkpoint), "merged by max"));
}

TEST(Engines, DenseGateAndUpAreMergedByMaxInVllmAndRefusedByTensorRt) {
  CheckpointFixture f;
  for (int layer : {3, 10}) {
    const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
    f.add_linear(mlp + "gate_proj", 32, 32);
    f.add_linear(mlp + "up_proj", 32, 32);
    f.add_f32(mlp + "gate_proj.weight_scale_2", {}, {3.85e-05F});
    f.add_f32(mlp + "up_proj.weight_scale_2", {}, {4.83e-05F});
  }
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  for (const char* engine : {"vllm", "sglang"}) {
    const auto p = with_effect(predicted(engine, *checkpoint), "merged by max");
    EXPECT_EQ(p.symptom, "gain x 1.2545");
    EXPECT_EQ(p.tensor, "model.layers.3.mlp.gate_proj.weight_scale_2");
    EXPECT_EQ(p.first_layer, 3);
    EXPECT_EQ(p.count, 2);
  }
  const auto trtllm = predicted("trtllm", *checkpoint);
  ASSERT_FALSE(trtllm.empty());
  EXPECT_EQ(trtllm[0].symptom, "refused");  // first, since nothing after it happens
  EXPECT_FALSE(has_effect(predicted("sextant", *checkpoint), "merged by max"));
}

// Case C022: the largest divisor is q's, so k comes out 5334.3257 / 12343.1035 = 0.4322 as large.
TEST(Engines, C022CompressedTensorsDivisorsAreMergedToTheLargestInVllm) {
  CheckpointFixture f;
  const std::pair<const char*, float> parts[] = {
      {"q_proj", 12343.1035F}, {"k_proj", 5334.3257F}, {"v_proj", 8001.4883F}};
  for (const auto& [part, divisor] : parts) {
    const std::string module = std::string("model.layers.0.self_attn.") + part;
    f.fill(module + ".weight_packed", "U8", {32, 16}, 0x21);
    f.fill(module + ".weight_scale", "F8_E4M3", {32, 2}, 0x38);
    f.add_f32(module + ".weight_global_scale", {1}, {divisor});
    f.add_f32(module + ".input_global_scale", {1}, {divisor});
  }
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  const auto all = predicted("vllm", *checkpoint);
  const auto merged = with_effect(all, "merged by max");
  EXPECT_EQ(merged.symptom, "gain x 0.4322");
  EXPECT_EQ(merged.tensor, "model.layers.0.self_attn.k_proj.weight_global_scale");
  EXPECT_EQ(with_effect(all, "saturated").symptom, "clipped");
}

TEST(Engines, C001MissingInputScaleIsNanInVllmDynamicInTensorRtUnusedInLlamaCpp) {
  CheckpointFixture f;
  add_f_moe(f);
  for (const char* part : {"gate_proj", "up_proj", "down_proj"})
    f.remove(std::string("model.layers.0.mlp.experts.5.") + part + ".input_scale");
  f.write_file("config.json", kQwenMoe);
  const auto checkpoint = opened(f.write());
  const auto vllm = with_effect(predicted("vllm", *checkpoint), "never loaded");
  EXPECT_EQ(vllm.symptom, "NaN");
  EXPECT_EQ(vllm.count, 3);
  EXPECT_EQ(vllm.tensor, "model.layers.0.mlp.experts.5.down_proj.input_scale");
  EXPECT_THAT(vllm.source, HasSubstr("vllm#45212"));
  EXPECT_EQ(with_effect(predicted("trtllm", *checkpoint), "dynamic").symptom, "none");
  EXPECT_EQ(with_effect(predicted("llama.cpp", *checkpoint), "not needed").symptom, "none");
}

TEST(Engines, ZeroInputScaleDependsOnTheDialect) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_f32(std::string(kDown) + ".input_scale", {}, {0.0F});
  f.write_file("config.json", kLlama);
  const auto modelopt = opened(f.write());
  EXPECT_EQ(with_effect(predicted("vllm", *modelopt), "divided by zero").symptom, "zeros");

  CheckpointFixture ct;
  add_f_lin_ct(ct);
  ct.add_f32(std::string(kDown) + ".input_global_scale", {1}, {0.0F});
  ct.write_file("config.json", kLlama);
  const auto divisor = opened(ct.write());
  EXPECT_EQ(with_effect(predicted("vllm", *divisor), "divided by zero").symptom, "NaN");
}

TEST(Engines, NanBlockScaleIsNanInVllmAndZeroInLlamaCpp) {
  CheckpointFixture f;
  add_f_lin(f);
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  Diagnosis full;
  full.linears = {nvfp4_summary(kDown, {{0x7F, 2}})};
  Diagnosis quick;  // without statistics: the scan's finding
  Finding finding;
  finding.id = "C1";
  finding.slug = "nan-block-scale";
  finding.tensor = std::string(kDown) + ".weight_scale";
  finding.instances = {finding.tensor};
  quick.findings = {finding};
  for (const Diagnosis* diagnosis : {&full, &quick}) {
    const auto vllm = with_effect(predicted("vllm", *checkpoint, *diagnosis), "read as NaN");
    EXPECT_EQ(vllm.symptom, "NaN");
    EXPECT_EQ(vllm.tensor, std::string(kDown) + ".weight_scale");
    EXPECT_EQ(vllm.first_layer, 0);
    const auto llama = predicted("llama.cpp", *checkpoint, *diagnosis);
    EXPECT_EQ(with_effect(llama, "read as zero").symptom, "zeros");
    EXPECT_EQ(predicted("sextant", *checkpoint, *diagnosis)[0].symptom, "refused");
  }
  EXPECT_FALSE(has_effect(predicted("vllm", *checkpoint), "read as NaN"));
}

// nvfp4.md 1.7: with 448 (0x7E) as maximum nothing is brought up and all below 2^-6 (0x08) goes;
// with 1.0 (0x38) scales are multiplied by 256, so that 2^-9 becomes 0.5 and stays.
TEST(Engines, MarlinFlushesWhatIsFarBelowTheMaximum) {
  CodeStatistics statistics;
  statistics.scale_bytes[0x00] = 7;
  statistics.scale_bytes[0x01] = 3;
  statistics.scale_bytes[0x07] = 2;
  statistics.scale_bytes[0x08] = 10;
  EXPECT_EQ(flushed_blocks(statistics, 0x7E, true), 5);
  EXPECT_EQ(flushed_blocks(statistics, 0x38, true), 0);
  EXPECT_EQ(flushed_blocks(statistics, 0x38, false), 5);
  EXPECT_EQ(flushed_blocks(statistics, 0, true), 0);
}

TEST(Engines, MarlinsMaximumIsThatOfTheFusedLayer) {
  CheckpointFixture f;
  f.add_linear("model.layers.2.mlp.gate_proj", 32, 32);
  f.add_linear("model.layers.2.mlp.up_proj", 32, 32);
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  Diagnosis diagnosis;
  diagnosis.linears = {
      nvfp4_summary("model.layers.2.mlp.gate_proj", {{0x7E, 64}}),
      nvfp4_summary("model.layers.2.mlp.up_proj", {{0x04, 16}, {0x38, 48}})};  // 0x04: 2^-7
  const auto p = with_effect(predicted("vllm", *checkpoint, diagnosis), "flushed");
  EXPECT_EQ(p.symptom, "partly zeros");
  EXPECT_EQ(p.tensor, "model.layers.2.mlp.up_proj.weight_scale");
  EXPECT_EQ(p.first_layer, 2);
  EXPECT_THAT(p.message, HasSubstr("25 %"));
  diagnosis.linears.erase(diagnosis.linears.begin());
  EXPECT_FALSE(has_effect(predicted("vllm", *checkpoint, diagnosis), "flushed"));
}

TEST(Engines, GgufNeedsColumnsInSixtyFours) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.mlp.down_proj", 4, 64);
  f.add_linear("model.layers.1.mlp.down_proj", 4, 96);
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  const auto p = with_effect(predicted("llama.cpp", *checkpoint), "refused");
  EXPECT_EQ(p.first_layer, 1);
  EXPECT_EQ(p.count, 1);
  EXPECT_THAT(p.message, HasSubstr("96 columns"));
  EXPECT_FALSE(has_effect(predicted("vllm", *checkpoint), "refused"));
}

TEST(Engines, AnIndexWithoutScalesStopsTheConverterAndNotVllm) {
  CheckpointFixture f;
  add_f_lin(f);
  f.write_file("config.json", kLlama);
  f.write_file("model.safetensors.index.json",
               R"({"weight_map": {"model.layers.0.mlp.down_proj.weight": "model.safetensors"}})");
  const auto checkpoint = opened(f.write());
  EXPECT_EQ(with_effect(predicted("llama.cpp", *checkpoint), "refused").count, 3);
  EXPECT_EQ(with_effect(predicted("vllm", *checkpoint), "loaded all the same").symptom, "none");
  EXPECT_EQ(with_effect(predicted("transformers", *checkpoint), "not known").symptom, "not known");
}

TEST(Engines, TheOtherConventionIsReadByTheName) {
  CheckpointFixture f;
  add_f_lin(f);
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  Diagnosis diagnosis;
  diagnosis.convention.weight_global = "divisor";
  diagnosis.convention.input = "divisor";
  const auto all = predicted("vllm", *checkpoint, diagnosis);
  EXPECT_EQ(all[0].symptom, "zeros");
  EXPECT_EQ(all[0].tensor, std::string(kDown) + ".input_scale");
  EXPECT_EQ(all[1].symptom, "gain");
  diagnosis.convention = {"multiplier", "multiplier", {}};
  EXPECT_FALSE(has_effect(predicted("vllm", *checkpoint, diagnosis), "other convention"));
}

TEST(Engines, NamesThatTheConfigsMethodDoesNotLoad) {
  CheckpointFixture f;
  add_f_lin(f);
  f.write_file("config.json", R"({"architectures": ["LlamaForCausalLM"],
      "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}})");
  const auto checkpoint = opened(f.write());
  EXPECT_EQ(with_effect(predicted("vllm", *checkpoint), "never loaded").symptom, "NaN");
}

TEST(Engines, TransformersDropsTheDivisorOfExperts) {
  CheckpointFixture f;
  const std::string module = "model.layers.4.mlp.experts.0.up_proj";
  f.fill(module + ".weight_packed", "U8", {32, 16}, 0x21);
  f.fill(module + ".weight_scale", "F8_E4M3", {32, 2}, 0x38);
  f.add_f32(module + ".weight_global_scale", {1}, {2000.0F});
  f.write_file("config.json", R"({"architectures": ["Qwen3MoeForCausalLM"]})");
  const auto checkpoint = opened(f.write());
  const auto p = with_effect(predicted("transformers", *checkpoint), "scale not used");
  EXPECT_EQ(p.symptom, "gain x 2000.0000");
  EXPECT_EQ(p.first_layer, 4);
}

TEST(Engines, NamesAreMappedDroppedAndNotKnown) {
  CheckpointFixture f;
  f.add_bf16("model.layers.0.self_attn.q_proj.weight", {32, 32}, 1.0F);
  f.add_bf16("model.layers.2.self_attn.q_proj.weight", {32, 32}, 1.0F);
  f.add_bf16("model.layers.2.eh_proj.weight", {32, 64}, 1.0F);
  f.add_bf16("vision.patch.weight", {32, 32}, 1.0F);
  f.write_file("config.json",
               R"({"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2})");
  const auto checkpoint = opened(f.write());
  const auto all = predicted("vllm", *checkpoint);
  const auto dropped = with_effect(all, "not loaded");
  EXPECT_EQ(dropped.symptom, "none");
  EXPECT_EQ(dropped.count, 2);
  EXPECT_EQ(dropped.first_layer, 2);
  const auto unknown = with_effect(all, "not known");
  EXPECT_EQ(unknown.tensor, "vision.patch.weight");
  EXPECT_EQ(unknown.count, 1);
}

TEST(Engines, DeepSeekV4DraftLayersAndExcludedAttention) {
  CheckpointFixture f;
  f.add_bf16("mtp.0.enorm.weight", {32}, 1.0F);
  f.fill("layers.1.attn.wq_a.weight", "F8_E4M3", {128, 128}, 0x38);
  f.fill("layers.1.attn.wq_a.scale", "F8_E8M0", {1, 1}, 127);
  f.write_file("config.json", R"({"architectures": ["DeepseekV4ForCausalLM"]})");
  const auto checkpoint = opened(f.write());
  EXPECT_EQ(with_effect(predicted("vllm", *checkpoint), "not loaded").tensor, "mtp.0.enorm.weight");
  EXPECT_EQ(with_effect(predicted("transformers", *checkpoint), "not loaded").count, 1);
  Diagnosis diagnosis;
  Finding finding;
  finding.id = "C20";
  finding.slug = "excluded-but-quantized";
  finding.tensor = "layers.1.attn.wq_a.weight";
  finding.count = 120;
  finding.instances = {finding.tensor, "layers.2.attn.wq_a.weight"};
  diagnosis.findings = {finding};
  const auto p = with_effect(predicted("trtllm", *checkpoint, diagnosis), "refused");
  EXPECT_EQ(p.count, 120);
  EXPECT_EQ(p.first_layer, 1);
  EXPECT_THAT(p.source, HasSubstr("TensorRT-LLM#16196"));
  EXPECT_EQ(predicted("sextant", *checkpoint)[0].symptom, "refused");
}

// --- parsing ---

TEST(EngineTables, TheManualNamesEveryCondition) {
  std::ifstream file(SX_SOURCE_DIR "/docs/engines.md");
  std::stringstream manual;
  manual << file.rdbuf();
  for (const EngineCondition& condition : engine_conditions())
    EXPECT_THAT(manual.str(), HasSubstr("`" + std::string(condition.name) + "`"));
}

std::string table_with(const std::string& line) {
  return R"({"engine": "mine", "as_of": "today", "architectures": {"Llama": ["LlamaForCausalLM"]},
             "lines": [)" +
         line + "]}";
}

TEST(EngineTables, AUsersTableIsText) {
  const auto table = parse_engine_table(
      table_with(R"({"kind": "condition", "when": "always", "effect": "slow", "symptom": "none",
                     "message": "runs", "source": "a test"})"),
      "mine.json");
  ASSERT_TRUE(table) << table.error().text;
  CheckpointFixture f;
  add_f_lin(f);
  f.write_file("config.json", kLlama);
  const auto checkpoint = opened(f.write());
  Diagnosis diagnosis;
  diagnosis.linears = {nvfp4_summary(kDown, {{0x7F, 1}})};
  const auto all = predict_by(*table, *checkpoint, diagnosis);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].symptom, "not known");  // no line about NaN
  EXPECT_THAT(all[0].message, HasSubstr("block scales that are NaN"));
  EXPECT_EQ(all[1].effect, "slow");
  EXPECT_EQ(all[1].engine, "mine");
}

TEST(EngineTables, MalformedOnesSayWhereAndWhatIsWrong) {
  const std::pair<std::string, const char*> cases[] = {
      {"{", "mine.json"},
      {R"({"engine": "mine"})", "\"as_of\" must be a non-empty string"},
      {R"({"engine": "m", "as_of": "t", "architectures": {"L": ["l"]}})", "\"lines\""},
      {table_with("3"), "line 0: expected an object, found an integer"},
      {table_with(R"({"kind": "rule"})"), "expected one of name, fused, condition"},
      {table_with(R"({"kind": "condition", "when": "nan-scale", "effect": "e", "symptom": "NaN",
                      "message": "m"})"),
       "line 0: \"source\" must be a non-empty string"},
      {table_with(R"({"kind": "condition", "when": "rainy", "source": "s"})"),
       "\"when\" is \"rainy\""},
      {table_with(R"({"kind": "condition", "when": "k-not-multiple", "source": "s"})"),
       "\"of\" must be a positive integer"},
      {table_with(R"({"kind": "condition", "when": "always", "effect": "e", "symptom": "bad",
                      "message": "m", "source": "s"})"),
       "\"symptom\" is \"bad\""},
      {table_with(R"({"kind": "fused", "parts": ["q"], "rule": "own", "source": "s"})"),
       "at least two"},
      {table_with(R"({"kind": "fused", "parts": ["q", "k"], "rule": "min", "source": "s"})"),
       "\"rule\" is \"min\""},
      {table_with(R"({"kind": "name", "names": ["a"], "action": "rename", "source": "s"})"),
       "\"to\" must be a non-empty string"},
      {table_with(R"({"kind": "name", "names": ["a"], "action": "load", "for": ["Qwen"],
                      "source": "s"})"),
       "\"for\" names Qwen"},
      {table_with(R"({"kind": "name", "names": ["a"], "action": "load", "sauce": "s"})"),
       "unknown member \"sauce\""},
  };
  for (const auto& [text, expected] : cases) {
    const auto table = parse_engine_table(text, "mine.json");
    ASSERT_FALSE(table) << text;
    EXPECT_EQ(table.error().code, Code::kInput);
    EXPECT_THAT(table.error().text, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace sextant
