// Quantization configs against stored tensors (cases C016, C037, C044 to C058).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/directory.h"
#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

using testing::add_f_moe;
using testing::CheckpointFixture;
using ::testing::ElementsAre;
using testing::find;
using ::testing::HasSubstr;
using testing::opened;
using testing::with_severity;

std::string modelopt(std::string_view exclude, std::string_view algorithm = "NVFP4") {
  return R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": ")" +
         std::string(algorithm) + R"(", "ignore": )" + std::string(exclude) + "}}";
}

const PatternReport* report_of(const Checkpoint& checkpoint, std::string_view pattern) {
  for (const PatternReport& report : checkpoint.patterns())
    if (report.pattern == pattern) return &report;
  return nullptr;
}

TEST(Config, C037LabelledNvfp4ButAlmostNothingQuantized) {
  CheckpointFixture f;
  for (int e = 0; e < 8; ++e)
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      f.add_bf16("model.layers.0.mlp.experts." + std::to_string(e) + "." + part + ".weight",
                 {32, 32}, 1.0F);
  f.add_linear("model.layers.0.self_attn.o_proj", 64, 32);
  f.write_file("config.json", modelopt("[]"));
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "low-coverage");
  ASSERT_NE(finding, nullptr);
  EXPECT_GE(finding->severity, Severity::kWarning);
  // 2048 of 8 * 3 * 1024 + 2048 parameters.
  EXPECT_NEAR(*finding->value, 2048.0 / 26624.0, 1e-12);
  EXPECT_THAT(finding->message, HasSubstr("8 %"));
  EXPECT_THAT(finding->message, HasSubstr("0 % of the experts'"));
}

TEST(Config, C037FusedExpertsCountToo) {
  CheckpointFixture f;
  f.add_bf16("model.layers.0.mlp.experts.gate_up_proj", {8, 64, 32}, 1.0F);
  f.add_linear("model.layers.0.self_attn.o_proj", 32, 32);
  f.write_file("config.json", modelopt("[]"));
  ASSERT_NE(find(*opened(f.write()), "low-coverage"), nullptr);
  f.write_file("config.json", modelopt(R"(["*.experts*"])"));
  EXPECT_EQ(find(*opened(f.write()), "low-coverage"), nullptr);
}

TEST(Config, C044OverlappingGroupsFirstTargetInFileOrderAndStoredDtypeDecides) {
  CheckpointFixture f;
  const char* parts[] = {"gate_proj", "up_proj", "down_proj"};
  for (const char* part : parts) {
    const std::string zero = std::string("model.layers.0.mlp.") + part;
    f.fill(zero + ".weight_packed", "U8", {32, 16}, 0x21);
    f.fill(zero + ".weight_scale", "F8_E4M3", {32, 2}, 0x38);
    f.add_f32(zero + ".weight_global_scale", {1}, {2.0F});
    const std::string one = std::string("model.layers.1.mlp.") + part;
    f.fill(one + ".weight", "F8_E4M3", {32, 32}, 0x38);
    f.add_f32(one + ".weight_scale", {1}, {0.5F});
  }
  const std::string fp8 = R"("group_0": {"targets": ["re:.*layers\\.1\\.mlp\\..*"],
      "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
      "input_activations": null})";
  const std::string nvfp4 = R"("group_1": {"targets": ["re:.*mlp\\.(gate|up|down)_proj$"],
      "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
      "input_activations": null})";
  const std::string head =
      R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision",
          "config_groups": {)";
  f.write_file("config.json", head + fp8 + "," + nvfp4 + "}}}");
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty()) << checkpoint->findings()[0].message;
  EXPECT_EQ(checkpoint->linear("model.layers.1.mlp.up_proj")->scheme, Scheme::kFp8Tensor);
  EXPECT_EQ(checkpoint->linear("model.layers.1.mlp.up_proj")->config_group, "group_0");
  EXPECT_EQ(checkpoint->linear("model.layers.0.mlp.up_proj")->scheme, Scheme::kNvfp4);
  EXPECT_EQ(checkpoint->linear("model.layers.0.mlp.up_proj")->config_group, "group_1");

  f.write_file("config.json", head + nvfp4 + "," + fp8 + "}}}");  // now the wrong group is first
  const auto swapped = opened(f.write());
  EXPECT_EQ(swapped->linear("model.layers.1.mlp.up_proj")->scheme, Scheme::kFp8Tensor);
  const Finding* finding = find(*swapped, "config-contradicts-tensors");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(finding->count, 3);
  EXPECT_EQ(finding->layer, 1);
}

TEST(Config, C046ConfigJsonAloneIsEnough) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.mlp.up_proj", 4, 32);
  f.write_file("config.json", modelopt("[]"));
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty());
  EXPECT_EQ(checkpoint->dialect(), "modelopt");
}

TEST(Config, C047BothPresentAndDifferent) {
  CheckpointFixture f;
  f.add_linear("lm_head", 4, 32);
  f.write_file("config.json", modelopt(R"(["lm_head"])"));
  f.write_file("hf_quant_config.json",
               R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": []}})");
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "configs-differ");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_THAT(finding->message, HasSubstr("exclude_modules = []"));
  EXPECT_THAT(finding->message, HasSubstr("ignore = ['lm_head']"));
  EXPECT_THAT(finding->message, HasSubstr("config.json is used"));
  // The stored tensors decide how lm_head runs.
  EXPECT_EQ(checkpoint->linear("lm_head")->scheme, Scheme::kNvfp4);
  const Finding* excluded = find(*checkpoint, "excluded-but-quantized");
  ASSERT_NE(excluded, nullptr);
  EXPECT_EQ(excluded->severity, Severity::kWarning);
  EXPECT_EQ(excluded->id, "C20");
  EXPECT_TRUE(with_severity(*checkpoint, Severity::kError).empty());

  f.write_file("hf_quant_config.json",
               R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(find(*opened(f.write()), "configs-differ"), nullptr);
}

TEST(Config, C049NotExcludedButStoredPlainRunsWithAWarning) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.mlp.up_proj", 64, 64);
  f.add_bf16("model.layers.0.self_attn.o_proj.weight", {32, 32}, 1.0F);
  f.write_file("config.json", modelopt("[]"));
  const auto checkpoint = opened(f.write());
  EXPECT_EQ(checkpoint->linear("model.layers.0.self_attn.o_proj")->scheme, Scheme::kBf16);
  const Finding* finding = find(*checkpoint, "declared-quantized-stored-plain");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_THAT(finding->message, HasSubstr("model.layers.0.self_attn.o_proj"));
  EXPECT_TRUE(with_severity(*checkpoint, Severity::kError).empty());
}

TEST(Config, C050WildcardsMatchTheNamesOfTheFile) {
  CheckpointFixture f;
  f.add_bf16("model.visual.blocks.0.attn.qkv.weight", {4, 4}, 1.0F);
  f.add_bf16("model.layers.0.mlp.router.weight", {4, 4}, 1.0F);
  f.add_linear("model.layers.0.mlp.experts.0.up_proj", 32, 32);
  f.write_file("config.json", modelopt(R"(["model.visual*", "*router*"])"));
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty()) << checkpoint->findings()[0].message;
  EXPECT_EQ(checkpoint->linear("model.visual.blocks.0.attn.qkv")->scheme, Scheme::kBf16);
  EXPECT_EQ(checkpoint->linear("model.layers.0.mlp.experts.0.up_proj")->scheme, Scheme::kNvfp4);
  EXPECT_THAT(report_of(*checkpoint, "model.visual*")->matched,
              ElementsAre("model.visual.blocks.0.attn.qkv"));
  EXPECT_THAT(report_of(*checkpoint, "*router*")->matched,
              ElementsAre("model.layers.0.mlp.router"));
}

TEST(Config, C052RegexIsAnchoredAndZeroMatchesWarn) {
  CheckpointFixture f;
  f.fill("model.visual.merger.mlp.0.weight", "F8_E4M3", {4, 32}, 0x38);
  f.add_f32("model.visual.merger.mlp.0.weight_scale", {1}, {1.0F});
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "compressed-tensors",
    "ignore": ["re:visual.*"], "config_groups": {"group_0": {"targets": ["Linear"], "weights":
    {"num_bits": 8, "type": "float", "strategy": "tensor"},
    "input_activations": {"dynamic": true}}}}})");
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "pattern-matches-nothing");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_THAT(finding->message, HasSubstr("re:visual.*"));
  EXPECT_THAT(finding->message, HasSubstr("from the start"));
  EXPECT_TRUE(report_of(*checkpoint, "re:visual.*")->matched.empty());
  EXPECT_EQ(report_of(*checkpoint, "Linear")->matched.size(), 1U);
}

TEST(Config, C053ExtraSuffixInIgnoreEntries) {
  const std::string wrapped = "model.vision_tower.encoder.layers.0.self_attn.q_proj.linear";
  CheckpointFixture f;
  f.add_bf16(wrapped + ".weight", {4, 4}, 1.0F);
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "compressed-tensors",
    "ignore": [")" + wrapped + R"("], "config_groups": {}}})");
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty()) << checkpoint->findings()[0].message;
  // By the name of the file and by the name an engine gives the module.
  const std::string plain = wrapped.substr(0, wrapped.size() - 7);
  ASSERT_NE(checkpoint->linear(wrapped), nullptr);
  EXPECT_EQ(checkpoint->linear(plain), checkpoint->linear(wrapped));
  EXPECT_EQ(checkpoint->linear(plain)->scheme, Scheme::kBf16);
  // And the exclusion with the suffix covers a file without it.
  f.rename(wrapped + ".weight", plain + ".weight");
  EXPECT_TRUE(opened(f.write())->findings().empty());
}

TEST(Config, C055WholeExpertBlockExcluded) {
  CheckpointFixture f;
  for (int layer = 2; layer < 4; ++layer)
    for (int e = 0; e < 2; ++e) {
      const std::string module = "model.layers." + std::to_string(layer) + ".mlp.experts." +
                                 std::to_string(e) + ".up_proj";
      if (layer == 3)
        f.add_bf16(module + ".weight", {32, 32}, 1.0F);
      else
        f.add_linear(module, 32, 32);
    }
  f.write_file("config.json", modelopt(R"(["model.layers.3.mlp.experts*"])"));
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty()) << checkpoint->findings()[0].message;
  EXPECT_EQ(checkpoint->linear("model.layers.3.mlp.experts.1.up_proj")->scheme, Scheme::kBf16);
  EXPECT_EQ(checkpoint->linear("model.layers.2.mlp.experts.1.up_proj")->scheme, Scheme::kNvfp4);
}

TEST(Config, C056SubtreePrefix) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.mlp.up_proj", 64, 64);
  f.add_bf16("mtp.fc.weight", {4, 8}, 1.0F);
  f.add_bf16("mtp.norm.weight", {4}, 1.0F);
  f.add_bf16("mtp.layers.0.mlp.up_proj.weight", {4, 4}, 1.0F);
  f.write_file("config.json", modelopt(R"(["mtp*"])"));
  const auto all = opened(f.write());
  EXPECT_EQ(find(*all, "declared-quantized-stored-plain"), nullptr);
  EXPECT_THAT(report_of(*all, "mtp*")->matched,
              ::testing::IsSupersetOf({"mtp.fc", "mtp.norm", "mtp.layers.0.mlp.up_proj"}));
  f.write_file("config.json", modelopt(R"(["mtp.layers.0*"])"));
  const auto some = opened(f.write());
  const Finding* finding = find(*some, "declared-quantized-stored-plain");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->instances, ElementsAre("mtp.fc.weight"));
}

TEST(Config, C058UnknownAlgorithmNamesTheLayerAndTheValue) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.mlp.up_proj", 4, 32);
  f.add_linear("model.layers.1.mlp.up_proj", 4, 32);
  f.write_file("hf_quant_config.json", R"({"quantization": {"quant_algo": "MIXED_PRECISION",
    "exclude_modules": [], "quantized_layers": {
      "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4_FUTURE"},
      "model.layers.1.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16}}}})");
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "unknown-algorithm");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_THAT(finding->message, HasSubstr("model.layers.0.mlp.up_proj"));
  EXPECT_THAT(finding->message, HasSubstr("NVFP4_FUTURE"));
  EXPECT_EQ(finding->layer, 0);
  EXPECT_EQ(checkpoint->linears().size(), 2U);  // the others are still listed
}

TEST(Config, UnknownMethodIsNamed) {
  CheckpointFixture f;
  f.add_bf16("m.up_proj.weight", {4, 4}, 1.0F);
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "hqq"}})");
  const Finding* finding = nullptr;
  const auto checkpoint = opened(f.write());
  finding = find(*checkpoint, "unknown-algorithm");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->message, HasSubstr("hqq"));
}

TEST(Config, MalformedFieldsAreFindings) {
  for (const char* quant :
       {R"("x")", R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": "lm_head"})",
        R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [1]})",
        R"({"quant_method": "compressed-tensors", "config_groups": []})",
        R"({"quant_method": "compressed-tensors", "config_groups": {"a": 1}})",
        R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"}) {
    CheckpointFixture f;
    f.add_bf16("m.up_proj.weight", {4, 4}, 1.0F);
    f.write_file("config.json", std::string(R"({"quantization_config": )") + quant + "}");
    const auto checkpoint = opened(f.write());
    EXPECT_NE(find(*checkpoint, "malformed-config"), nullptr) << quant;
  }
}

TEST(Config, BadAndRunawayRegularExpressionsAreErrors) {
  for (const char* pattern : {"re:(", "re:(x+x+)+[yz]"}) {
    CheckpointFixture f;
    f.add_bf16("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.weight", {4, 4}, 1.0F);
    f.write_file("config.json",
                 std::string(R"({"quantization_config": {"quant_method": "compressed-tensors",
                                 "config_groups": {}, "ignore": [")") +
                     pattern + R"("]}})");
    const auto checkpoint = opened(f.write());
    ASSERT_NE(find(*checkpoint, "bad-pattern"), nullptr) << pattern;
    EXPECT_EQ(find(*checkpoint, "bad-pattern")->severity, Severity::kError);
  }
}

TEST(Config, ExcludedTiedHeadIsNoUnmatchedPattern) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.mlp.up_proj", 4, 32);
  f.write_file("config.json", R"({"tie_word_embeddings": true, "quantization_config":
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}})");
  EXPECT_TRUE(opened(f.write())->findings().empty());
}

}  // namespace
}  // namespace sextant
