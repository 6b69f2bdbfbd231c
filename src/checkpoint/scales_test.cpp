// Values of scales (cases C001 to C019, C059 to C062): what is refused, what only warns, what the
// decoded numbers are.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/directory.h"
#include "checkpoint/scan.h"
#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

using testing::add_f_lin;
using testing::add_f_lin_ct;
using testing::add_f_moe;
using testing::CheckpointFixture;
using testing::dequantized;
using ::testing::ElementsAre;
using testing::find;
using ::testing::HasSubstr;
using testing::opened;
using testing::scanned;
using testing::with_severity;

constexpr char kLin[] = "model.layers.0.mlp.down_proj";
constexpr char kNvfp4Config[] =
    R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})";
const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::string lin(const char* part) { return std::string(kLin) + "." + part; }

TEST(Scales, FLinDequantizesToAQuarterAndAHalf) {
  for (const bool compressed_tensors : {false, true}) {
    CheckpointFixture f;
    compressed_tensors ? add_f_lin_ct(f) : add_f_lin(f);
    const auto checkpoint = opened(f.write());
    const LinearRecord* record = checkpoint->linear(kLin);
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->n, 4);
    EXPECT_EQ(record->k, 32);
    EXPECT_EQ(record->input_scale, 0.25F);
    const std::vector<float> values = dequantized(*record);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i % 2 == 0 ? 0.25F : 0.5F);
    EXPECT_TRUE(checkpoint->findings().empty()) << checkpoint->findings()[0].message;
    EXPECT_EQ(checkpoint->tensors_of(*record).size(), 4U);
    EXPECT_EQ(row_multipliers(*record), std::vector<float>(4, 0.5F));
  }
}

TEST(Scales, C001ExpertWithoutInputScaleIsAnErrorForQuantizedActivationsOnly) {
  for (const bool with_config : {true, false}) {
    CheckpointFixture f;
    add_f_moe(f);
    if (with_config) f.write_file("config.json", kNvfp4Config);
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      f.remove(std::string("model.layers.0.mlp.experts.5.") + part + ".input_scale");
    const auto checkpoint = opened(f.write());
    const Finding* finding = find(*checkpoint, "missing-input-scale");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, Severity::kError);
    EXPECT_EQ(finding->count, 3);
    EXPECT_EQ(finding->layer, 0);
    EXPECT_EQ(finding->expert, 5);
    EXPECT_TRUE(finding->activation_only);
    EXPECT_THAT(finding->instances,
                ElementsAre("model.layers.0.mlp.experts.5.down_proj.input_scale",
                            "model.layers.0.mlp.experts.5.gate_proj.input_scale",
                            "model.layers.0.mlp.experts.5.up_proj.input_scale"));
    for (const std::string& name : finding->instances)
      EXPECT_THAT(finding->message, HasSubstr(name));
    EXPECT_TRUE(refuse_errors(checkpoint->findings(), false));
    const Status refused = refuse_errors(checkpoint->findings(), true);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kModel);
    EXPECT_THAT(refused.error().text, HasSubstr("experts.5.down_proj.input_scale"));
  }
}

TEST(Scales, C002ZeroInputScaleIsTheSameClassOfError) {
  CheckpointFixture f;
  add_f_moe(f);
  f.add_f32("model.layers.0.mlp.experts.2.down_proj.input_scale", {}, {0.0F});
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "bad-scalar-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_TRUE(finding->activation_only);
  EXPECT_EQ(finding->expert, 2);
  EXPECT_EQ(finding->value, 0.0);
  EXPECT_FALSE(
      checkpoint->linear("model.layers.0.mlp.experts.2.down_proj")->input_scale.has_value());
}

TEST(Scales, C004InfiniteActivationDivisor) {
  CheckpointFixture f;
  add_f_lin_ct(f);
  f.add_f32(lin("input_global_scale"), {1}, {kInf});
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "bad-scalar-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(finding->activation_only);
  EXPECT_EQ(finding->tensor, lin("input_global_scale"));
  EXPECT_THAT(finding->message, HasSubstr("inf"));
  EXPECT_TRUE(refuse_errors(checkpoint->findings(), false));
}

TEST(Scales, C005NanBlockScaleIsNamedByRowGroupAndByte) {
  for (const uint8_t byte : {uint8_t{0x7F}, uint8_t{0xFF}}) {
    CheckpointFixture f;
    add_f_lin(f);
    f.tensor(lin("weight_scale")).bytes[2 * 2 + 1] = byte;
    const auto checkpoint = opened(f.write());
    EXPECT_TRUE(checkpoint->findings().empty());
    for (const int n_threads : {1, 2}) {
      const std::vector<Finding> findings = scanned(*checkpoint, n_threads);
      ASSERT_EQ(findings.size(), 1U);
      EXPECT_EQ(findings[0].slug, "nan-block-scale");
      EXPECT_EQ(findings[0].id, "C1");
      EXPECT_EQ(findings[0].severity, Severity::kError);
      EXPECT_THAT(findings[0].index, ElementsAre(2, 1));
      EXPECT_THAT(findings[0].message, HasSubstr(byte == 0x7F ? "0x7F" : "0xFF"));
      EXPECT_EQ(findings[0].count, 1);
      ASSERT_TRUE(findings[0].offset.has_value());
      EXPECT_EQ(*findings[0].offset, checkpoint->tensor(lin("weight_scale")).info->begin + 5);
    }
  }
}

TEST(Scales, ScanFindsEveryByteWhereverItStands) {
  // Each position of a tensor of 3 x 7 scales: words, and the bytes after the last word.
  for (int64_t at = 0; at < 21; ++at) {
    CheckpointFixture f;
    f.add_linear("m.up_proj", 3, 112);
    for (size_t i = 0; i < 21; ++i)
      f.tensor("m.up_proj.weight_scale").bytes[i] = static_cast<uint8_t>(i % 2 == 0 ? 0x7E : 0);
    f.tensor("m.up_proj.weight_scale").bytes[static_cast<size_t>(at)] = 0x7F;
    const auto checkpoint = opened(f.write());
    const std::vector<Finding> findings = scanned(*checkpoint);
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_THAT(findings[0].index, ElementsAre(at / 7, at % 7));
  }
}

TEST(Scales, ScanCountsOverTensorsAndKeepsTheWorst) {
  CheckpointFixture f;
  f.add_linear("a.up_proj", 4, 32);
  f.add_linear("b.up_proj", 4, 32);
  f.tensor("a.up_proj.weight_scale").bytes[0] = 0x7F;
  for (size_t i = 2; i < 5; ++i) f.tensor("b.up_proj.weight_scale").bytes[i] = 0xFF;
  const auto checkpoint = opened(f.write());
  const std::vector<Finding> findings = scanned(*checkpoint);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].count, 4);
  EXPECT_EQ(findings[0].tensor, "b.up_proj.weight_scale");
  EXPECT_THAT(findings[0].instances,
              ElementsAre("b.up_proj.weight_scale", "a.up_proj.weight_scale"));
}

TEST(Scales, C008SubnormalBlockScaleIsExact) {
  CheckpointFixture f;
  add_f_lin(f);
  f.fill(lin("weight_scale"), "F8_E4M3", {4, 2}, 0x01);
  const auto checkpoint = opened(f.write());
  const std::vector<float> values = dequantized(*checkpoint->linear(kLin));
  EXPECT_EQ(values[0], 0.00048828125F);
  EXPECT_EQ(values[1], 0.0009765625F);
}

TEST(Scales, C010NegativeBlockScaleWarnsAndKeepsItsSign) {
  CheckpointFixture f;
  add_f_lin(f);
  f.tensor(lin("weight_scale")).bytes[0] = 0xB8;
  const auto checkpoint = opened(f.write());
  const std::vector<float> values = dequantized(*checkpoint->linear(kLin));
  EXPECT_EQ(values[0], -0.25F);
  EXPECT_EQ(values[1], -0.5F);
  EXPECT_EQ(values[16], 0.25F);
  const std::vector<Finding> findings = scanned(*checkpoint);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].slug, "negative-block-scale");
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_THAT(findings[0].index, ElementsAre(0, 0));
}

TEST(Scales, C011ZeroBlockScaleDequantizesToZeros) {
  CheckpointFixture f;
  add_f_lin(f);
  f.tensor(lin("weight_scale")).bytes[2] = 0x00;
  const std::vector<float> values = dequantized(*opened(f.write())->linear(kLin));
  for (size_t i = 32; i < 48; ++i) EXPECT_EQ(values[i], 0.0F);
  EXPECT_EQ(values[48], 0.25F);
}

TEST(Scales, C013MissingGlobalScaleIsAnErrorWhateverThePolicy) {
  CheckpointFixture f;
  add_f_lin(f);
  f.remove(lin("weight_scale_2"));
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "missing-global-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_FALSE(finding->activation_only);
  EXPECT_EQ(finding->tensor, lin("weight_scale_2"));
  EXPECT_EQ(checkpoint->linear(kLin), nullptr);
  EXPECT_FALSE(refuse_errors(checkpoint->findings(), false));
}

TEST(Scales, MissingGlobalScaleOfCompressedTensors) {
  CheckpointFixture f;
  add_f_lin_ct(f);
  f.remove(lin("weight_global_scale"));
  const auto checkpoint = opened(f.write());
  ASSERT_NE(find(*checkpoint, "missing-global-scale"), nullptr);
  EXPECT_EQ(find(*checkpoint, "missing-global-scale")->tensor, lin("weight_global_scale"));
}

TEST(Scales, C014NanZeroNegativeOrDenormalGlobalScale) {
  for (const float value : {kNan, 0.0F, -0.5F, kInf, 1e-40F}) {
    CheckpointFixture f;
    add_f_lin(f);
    f.add_f32(lin("weight_scale_2"), {}, {value});
    const auto checkpoint = opened(f.write());
    const Finding* finding = find(*checkpoint, "bad-scalar-scale");
    ASSERT_NE(finding, nullptr) << value;
    EXPECT_EQ(finding->severity, Severity::kError);
    EXPECT_FALSE(finding->activation_only);
    ASSERT_TRUE(finding->value.has_value());
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(*finding->value));
    else
      EXPECT_EQ(*finding->value, value);
    EXPECT_THAT(finding->message, HasSubstr(std::isnan(value) ? "nan" : value == 0 ? "is 0" : ""));
    EXPECT_FALSE(refuse_errors(checkpoint->findings(), false));
  }
}

TEST(Scales, C016WeightOnlyByNullActivationsHasNoWarning) {
  CheckpointFixture f;
  add_f_moe(f, false);
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "modelopt",
    "quant_algo": "NVFP4", "ignore": ["*.gate"], "config_groups": {"group_0":
    {"input_activations": null, "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float",
    "group_size": 16}}}}})");
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty()) << checkpoint->findings()[0].message;
  EXPECT_EQ(checkpoint->linears().size(), 25U);
  EXPECT_FALSE(checkpoint->linears().begin()->second.input_scale.has_value());
}

TEST(Scales, C017WeightOnlyByAlgorithmName) {
  CheckpointFixture f;
  add_f_lin(f);
  f.remove(lin("input_scale"));
  f.write_file("hf_quant_config.json",
               R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "W4A16_NVFP4",
                   "group_size": 16, "exclude_modules": []}})");
  EXPECT_TRUE(opened(f.write())->findings().empty());
}

TEST(Scales, C019PinnedActivationScalesAreAccepted) {
  CheckpointFixture f;
  add_f_moe(f);
  for (int e = 0; e < 8; ++e)
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      f.add_f32("model.layers.0.mlp.experts." + std::to_string(e) + "." + part + ".input_scale", {},
                {1.0F});
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(with_severity(*checkpoint, Severity::kError).empty());
  EXPECT_TRUE(with_severity(*checkpoint, Severity::kWarning).empty());
}

TEST(Scales, Bf16ScalarsAreUsedWithAWarning) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_bf16(lin("weight_scale_2"), {}, 0.5F);
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "bf16-scalar-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(dequantized(*checkpoint->linear(kLin))[0], 0.25F);
}

TEST(Scales, Float32BlockScalesAreTakenIfE4m3HoldsThem) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_f32(lin("weight_scale"), {4, 2}, {1, 448, 0.001953125F, 0, 1, 1, 1.125F, 1});
  const auto checkpoint = opened(f.write());
  const LinearRecord* record = checkpoint->linear(kLin);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->scales.info->dtype, DType::kF8E4M3);
  EXPECT_EQ(dequantized(*record)[16], 448 * 0.25F);
  EXPECT_EQ(dequantized(*record)[96], 1.125F * 0.25F);

  f.add_f32(lin("weight_scale"), {4, 2}, {1, 1, 1, 1.1F, 1, 1, 1, 1});
  const auto rounded = opened(f.write());
  const Finding* finding = find(*rounded, "scale-dtype");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_THAT(finding->index, ElementsAre(1, 1));
}

TEST(Scales, C059KvScalesAreAttachedToTheirAttention) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_f32("model.layers.0.self_attn.k_proj.k_scale", {}, {0.5F});
  f.add_f32("model.layers.0.self_attn.v_proj.v_scale", {}, {0.25F});
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(checkpoint->findings().empty());
  ASSERT_EQ(checkpoint->kv_scales().count("model.layers.0.self_attn"), 1U);
  const KvScales& scales = checkpoint->kv_scales().at("model.layers.0.self_attn");
  EXPECT_EQ(scales.k_scale, 0.5F);
  EXPECT_EQ(scales.v_scale, 0.25F);
  EXPECT_EQ(checkpoint->harmless_tensors().count("model.layers.0.self_attn.k_proj.k_scale"), 1U);
}

TEST(Scales, C061BadKvScaleIsAnError) {
  for (const float value : {0.0F, kNan}) {
    CheckpointFixture f;
    add_f_lin(f);
    f.add_f32("model.layers.0.self_attn.k_proj.k_scale", {}, {value});
    const auto checkpoint = opened(f.write());
    const Finding* finding = find(*checkpoint, "bad-kv-scale");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, Severity::kError);
    EXPECT_EQ(finding->layer, 0);
    EXPECT_FALSE(checkpoint->kv_scales().at("model.layers.0.self_attn").k_scale.has_value());
  }
}

TEST(Scales, C062UnknownExpertScaleIsListedAndTheAliasIsRead) {
  CheckpointFixture f;
  add_f_moe(f);
  f.add_f32("model.layers.0.mlp.experts.0.w2_input_scale_extra", {}, {1.0F});
  f.rename("model.layers.0.mlp.experts.1.down_proj.input_scale",
           "model.layers.0.mlp.experts.1.w2.input_scale");
  const auto checkpoint = opened(f.write());
  EXPECT_TRUE(with_severity(*checkpoint, Severity::kError).empty());
  const Finding* finding = find(*checkpoint, "unknown-scale-name");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kNote);
  EXPECT_EQ(finding->tensor, "model.layers.0.mlp.experts.0.w2_input_scale_extra");
  EXPECT_EQ(checkpoint->harmless_tensors().size(), 1U);
  const LinearRecord* record = checkpoint->linear("model.layers.0.mlp.experts.1.down_proj");
  EXPECT_EQ(record->input_scale, 0.25F);
  EXPECT_THAT(checkpoint->tensors_of(*record),
              ::testing::Contains("model.layers.0.mlp.experts.1.w2.input_scale"));
}

TEST(Scales, OrphanScaleAndScaleOfAPlainWeightAreErrors) {
  CheckpointFixture f;
  add_f_lin(f);
  f.remove(lin("weight"));
  EXPECT_NE(find(*opened(f.write()), "orphan-scale"), nullptr);
  f.add_bf16(lin("weight"), {4, 32}, 1.0F);
  EXPECT_NE(find(*opened(f.write()), "scale-of-plain-weight"), nullptr);
}

}  // namespace
}  // namespace sextant
