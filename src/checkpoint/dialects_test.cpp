// Shapes and dtypes of every dialect (cases C020 to C044, C077 to C083): each linear is recognized
// by its own tensors, and what does not fit is named with its likely cause.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/directory.h"
#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

using testing::add_f_lin;
using testing::add_f_lin_ct;
using testing::add_f_moe;
using testing::CheckpointFixture;
using testing::dequantized;
using testing::find;
using ::testing::HasSubstr;
using testing::opened;
using testing::scanned;
using testing::with_severity;

constexpr char kLin[] = "model.layers.0.mlp.down_proj";
std::string lin(const char* part) { return std::string(kLin) + "." + part; }

TEST(Dialects, C020GateAndUpKeepTheirOwnScales) {
  CheckpointFixture f;
  add_f_moe(f);
  f.add_f32("model.layers.0.mlp.experts.0.gate_proj.weight_scale_2", {}, {3.85e-05F});
  f.add_f32("model.layers.0.mlp.experts.0.up_proj.weight_scale_2", {}, {4.83e-05F});
  const auto checkpoint = opened(f.write());
  const auto* gate = checkpoint->linear("model.layers.0.mlp.experts.0.gate_proj");
  const auto* up = checkpoint->linear("model.layers.0.mlp.experts.0.up_proj");
  EXPECT_EQ(gate->ranges[0].g, 3.85e-05F);
  EXPECT_EQ(up->ranges[0].g, 4.83e-05F);
  const Finding* finding = find(*checkpoint, "fused-scale-ratio");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kNote);
  EXPECT_THAT(finding->message, HasSubstr("1.2545"));
  EXPECT_EQ(finding->count, 1);
  EXPECT_EQ(finding->expert, 0);
}

TEST(Dialects, C022DivisorsOfQkvThatDiffer) {
  CheckpointFixture f;
  const float divisors[] = {12343.1035F, 5334.3257F, 8001.4883F};
  const char* parts[] = {"q_proj", "k_proj", "v_proj"};
  const float expected[] = {4.05085e-05F, 9.37326e-05F, 6.24884e-05F};
  for (int i = 0; i < 3; ++i) {
    const std::string module = std::string("model.layers.0.self_attn.") + parts[i];
    f.fill(module + ".weight_packed", "U8", {32, 16}, 0x21);
    f.fill(module + ".weight_scale", "F8_E4M3", {32, 2}, 0x38);
    f.add_f32(module + ".weight_global_scale", {1}, {divisors[i]});
  }
  const auto checkpoint = opened(f.write());
  EXPECT_EQ(checkpoint->dialect(), "compressed-tensors");
  for (int i = 0; i < 3; ++i) {
    const auto* record = checkpoint->linear(std::string("model.layers.0.self_attn.") + parts[i]);
    ASSERT_NE(record, nullptr);
    EXPECT_TRUE(record->ranges[0].is_divisor);
    EXPECT_EQ(record->ranges[0].stored, divisors[i]);  // the bits of the file
    EXPECT_NEAR(dequantized(*record)[0], expected[i], 1e-10);
  }
}

TEST(Dialects, C023FusedQkvWithOneScalar) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.self_attn.qkv_proj", 96, 32);
  const auto checkpoint = opened(f.write());
  const auto* record = checkpoint->linear("model.layers.0.self_attn.qkv_proj");
  ASSERT_NE(record, nullptr);
  const std::vector<float> values = dequantized(*record);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i % 2 == 0 ? 0.25F : 0.5F);
  EXPECT_EQ(record->input_scale, 0.25F);
}

TEST(Dialects, C025FusedVectorNeedsADocumentedSplit) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.self_attn.qkv_proj", 96, 32);
  f.add_f32("model.layers.0.self_attn.qkv_proj.weight_scale_2", {3}, {0.5F, 0.25F, 0.125F});
  const auto guessing = opened(f.write());
  ASSERT_NE(find(*guessing, "ambiguous-scale-split"), nullptr);
  EXPECT_EQ(guessing->linear("model.layers.0.self_attn.qkv_proj"), nullptr);

  f.write_file("config.json",
               R"({"hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1})");
  const auto checkpoint = opened(f.write());
  const auto* record = checkpoint->linear("model.layers.0.self_attn.qkv_proj");
  ASSERT_NE(record, nullptr);
  ASSERT_EQ(record->ranges.size(), 3U);
  const std::vector<float> rows = row_multipliers(*record);
  EXPECT_EQ(rows[31], 0.5F);
  EXPECT_EQ(rows[32], 0.25F);
  EXPECT_EQ(rows[63], 0.25F);
  EXPECT_EQ(rows[64], 0.125F);

  f.write_file("config.json",
               R"({"hidden_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1})");
  EXPECT_NE(find(*opened(f.write()), "ambiguous-scale-split"), nullptr);  // does not add up to 96
}

TEST(Dialects, C026VTakesAllOfKWhereTheConfigSaysSo) {
  CheckpointFixture f;
  f.add_linear("model.layers.0.self_attn.k_proj", 32, 32);
  EXPECT_EQ(opened(f.write())->linear("model.layers.0.self_attn.v_proj"), nullptr);
  f.write_file("config.json", R"({"attention_k_eq_v": true})");
  const auto checkpoint = opened(f.write());
  const auto* k = checkpoint->linear("model.layers.0.self_attn.k_proj");
  const auto* v = checkpoint->linear("model.layers.0.self_attn.v_proj");
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->weight.info, k->weight.info);
  EXPECT_EQ(v->scales.info, k->scales.info);
  EXPECT_EQ(v->ranges[0].g, 0.5F);
  EXPECT_EQ(v->input_scale, 0.25F);
  EXPECT_EQ(checkpoint->tensors_of(*v), checkpoint->tensors_of(*k));
}

TEST(Dialects, C028DivisorKeepsItsBitsAndItsReciprocal) {
  CheckpointFixture f;
  add_f_lin_ct(f);
  f.add(lin("weight_global_scale"), "F32", {1}, {0x6A, 0xDC, 0x40, 0x46});  // 0x4640DC6A
  const auto checkpoint = opened(f.write());
  const ScaleRange& range = checkpoint->linear(kLin)->ranges[0];
  EXPECT_EQ(std::bit_cast<uint32_t>(range.stored), 0x4640DC6AU);
  EXPECT_EQ(std::bit_cast<uint32_t>(range.g), 0x38A9E79EU);
}

TEST(Dialects, C032LowNibbleIsTheEvenElement) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_f32(lin("weight_scale_2"), {}, {1.0F});
  const std::vector<float> values = dequantized(*opened(f.write())->linear(kLin));
  EXPECT_EQ(values[0], 0.5F);
  EXPECT_EQ(values[1], 1.0F);
}

TEST(Dialects, C034HalfSizedBlockScalesAreNotGroupsOf32) {
  CheckpointFixture f;
  add_f_lin(f);
  f.fill(lin("weight_scale"), "F8_E4M3", {4, 1}, 0x38);
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "modelopt",
                                  "quant_algo": "NVFP4", "group_size": 16}})");
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "group-size");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_THAT(finding->message, HasSubstr("K is 32"));
  EXPECT_THAT(finding->message, HasSubstr("2 groups of 16 are expected"));
  EXPECT_THAT(finding->message, HasSubstr("[4, 1]"));
  EXPECT_THAT(finding->message, HasSubstr("packed width"));
  EXPECT_EQ(checkpoint->linear(kLin), nullptr);
}

TEST(Dialects, Row35WeightOfDoubleAndHalfWidth) {
  CheckpointFixture f;
  add_f_lin(f);
  f.fill(lin("weight"), "U8", {4, 32}, 0x02);  // one code a byte
  EXPECT_THAT(find(*opened(f.write()), "group-size")->message, HasSubstr("one a byte"));
  f.fill(lin("weight"), "U8", {4, 8}, 0x21);
  EXPECT_THAT(find(*opened(f.write()), "group-size")->message, HasSubstr("half as wide"));
}

TEST(Dialects, Row34SwizzledTransposedAndForeignScales) {
  CheckpointFixture f;
  f.add_linear(kLin, 96, 80);
  f.fill(lin("weight_scale"), "F8_E4M3", {128 * 8}, 0x38);
  EXPECT_THAT(find(*opened(f.write()), "group-size")->message, HasSubstr("swizzled"));
  f.fill(lin("weight_scale"), "F8_E4M3", {128, 8}, 0x38);
  EXPECT_THAT(find(*opened(f.write()), "group-size")->message, HasSubstr("swizzled"));
  f.fill(lin("weight_scale"), "F8_E4M3", {5, 96}, 0x38);
  EXPECT_THAT(find(*opened(f.write()), "group-size")->message, HasSubstr("transposed"));
  f.fill(lin("weight_scale"), "F8_E4M3", {48, 5}, 0x38);
  const auto checkpoint = opened(f.write());
  EXPECT_THAT(find(*checkpoint, "group-size")->message, HasSubstr("another layer"));
  EXPECT_EQ(find(*checkpoint, "group-size")->layer, 0);
  f.fill(lin("weight_scale"), "U8", {96, 5}, 0x38);
  EXPECT_NE(find(*opened(f.write()), "scale-dtype"), nullptr);
  f.remove(lin("weight_scale"));
  EXPECT_NE(find(*opened(f.write()), "missing-block-scale"), nullptr);
}

TEST(Dialects, GroupsOf32AreSplitWhereTheConfigDeclaresThem) {
  CheckpointFixture f;
  f.add_linear(kLin, 2, 64);
  f.add(lin("weight_scale"), "F8_E4M3", {2, 2}, {0x38, 0x40, 0x48, 0x30});
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "modelopt",
                                  "quant_algo": "W4A8_NVFP4_FP8", "group_size": 32}})");
  const auto checkpoint = opened(f.write());
  const auto* record = checkpoint->linear(kLin);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->block_k, 16);
  const std::vector<float> values = dequantized(*record);
  const float scales[] = {1, 2, 4, 0.5F};
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], (i % 2 == 0 ? 0.25F : 0.5F) * scales[i / 32]);
}

TEST(Dialects, C035LeakedBufferIsListedWithAReason) {
  CheckpointFixture f;
  add_f_lin(f);
  const std::string leaked = lin("weight_quantizer._double_scale");
  f.add_f32(leaked, {}, {1.0F});
  const auto checkpoint = opened(f.write());
  ASSERT_EQ(checkpoint->harmless_tensors().count(leaked), 1U);
  EXPECT_THAT(checkpoint->harmless_tensors().at(leaked), HasSubstr("quantizer"));
  const Finding* finding = find(*checkpoint, "ignored-tensor");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kNote);
  EXPECT_EQ(finding->id, "C16");
}

TEST(Dialects, UnusedDraftLayersAreNotes) {
  CheckpointFixture f;
  f.write_file("config.json", R"({"num_hidden_layers": 2})");
  f.add_bf16("model.layers.1.mlp.up_proj.weight", {4, 4}, 1.0F);
  f.add_bf16("model.layers.2.eh_proj.weight", {4, 8}, 1.0F);
  f.add_bf16("model.layers.2.mlp.up_proj.weight", {4, 4}, 1.0F);
  f.add_bf16("model.layers.3.mlp.up_proj.weight", {4, 4}, 1.0F);
  f.add_bf16("mtp.fc.weight", {4, 4}, 1.0F);
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "draft-layer");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kNote);
  EXPECT_EQ(finding->count, 3);
  EXPECT_EQ(checkpoint->harmless_tensors().count("model.layers.2.mlp.up_proj.weight"), 1U);
  // A surplus layer without a draft head is no known kind.
  EXPECT_EQ(checkpoint->harmless_tensors().count("model.layers.3.mlp.up_proj.weight"), 0U);
}

TEST(Dialects, C038Mxfp4IsReadAlikeUnderBothDtypes) {
  const struct {
    uint8_t byte;
    float first, second;
  } kCases[] = {{127, 0.5F, 1.0F}, {128, 1.0F, 2.0F}, {0, 0x1p-128F, 0x1p-127F}};
  for (const char* dtype : {"F8_E8M0", "U8"}) {
    for (const auto& c : kCases) {
      CheckpointFixture f;
      f.fill("m.weight", "U8", {1, 16}, 0x21);
      f.fill("m.weight_scale", dtype, {1, 1}, c.byte);
      const auto checkpoint = opened(f.write());
      const auto* record = checkpoint->linear("m");
      ASSERT_NE(record, nullptr);
      EXPECT_EQ(record->scheme, Scheme::kMxfp4);
      EXPECT_EQ(record->scales.info->dtype, DType::kF8E8M0);
      EXPECT_EQ(dequantized(*record)[0], c.first);
      EXPECT_EQ(dequantized(*record)[1], c.second);
      EXPECT_TRUE(scanned(*checkpoint).empty());
      EXPECT_EQ(checkpoint->dialect(), "mxfp4");
    }
    CheckpointFixture f;
    f.fill("m.weight_packed", "U8", {1, 16}, 0x21);
    f.fill("m.weight_scale", dtype, {1, 1}, 255);
    const std::vector<Finding> findings = scanned(*opened(f.write()));
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].slug, "nan-block-scale");
    EXPECT_EQ(findings[0].severity, Severity::kError);
  }
}

TEST(Dialects, C043MixedFileIsRecognizedTensorByTensor) {
  CheckpointFixture f;
  f.fill("a.weight", "F8_E4M3", {130, 256}, 0x38);
  f.add_f32("a.weight_scale", {2, 2}, {1, 2, 4, 8});
  f.add_linear("b", 4, 32);
  const auto checkpoint = opened(f.write());
  const auto* fp8 = checkpoint->linear("a");
  ASSERT_NE(fp8, nullptr);
  EXPECT_EQ(fp8->scheme, Scheme::kFp8Block);
  EXPECT_EQ(checkpoint->linear("b")->scheme, Scheme::kNvfp4);
  const std::vector<float> values = dequantized(*fp8);
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[128], 2.0F);
  EXPECT_EQ(values[128 * 256], 4.0F);  // the ragged last block of rows
  EXPECT_EQ(values[129 * 256 + 255], 8.0F);
}

TEST(Dialects, Fp8InAllItsShapes) {
  CheckpointFixture f;
  f.fill("tensor.weight", "F8_E4M3", {4, 32}, 0x38);
  f.add_f32("tensor.weight_scale", {1}, {0.5F});
  f.add_f32("tensor.input_scale", {}, {0.25F});
  f.fill("channel.weight", "F8_E4M3", {4, 32}, 0x38);
  f.add_bf16("channel.weight_scale", {4, 1}, {1, 2, 3, 4});
  f.fill("row.weight", "F8_E4M3", {4, 32}, 0x38);
  f.add_f32("row.weight_scale", {4}, {1, 2, 3, 4});
  f.fill("powers.weight", "F8_E4M3", {200, 128}, 0x38);
  f.add("powers.weight_scale_inv", "F8_E8M0", {2, 1}, {127, 129});
  f.fill("four_d.weight", "F8_E4M3", {256, 128}, 0x38);
  f.add_f32("four_d.weight_scale", {2, 1, 1, 1}, {1, 8});
  f.fill("deepseek.weight", "F8_E4M3", {128, 128}, 0x38);
  f.add("deepseek.scale", "F8_E8M0", {1, 1}, {130});
  const auto checkpoint = opened(f.write());
  const auto value = [&](const char* module, size_t i) {
    return dequantized(*checkpoint->linear(module))[i];
  };
  EXPECT_EQ(checkpoint->linear("tensor")->scheme, Scheme::kFp8Tensor);
  EXPECT_EQ(checkpoint->linear("tensor")->input_scale, 0.25F);
  EXPECT_EQ(value("tensor", 5), 0.5F);
  EXPECT_EQ(checkpoint->linear("channel")->scheme, Scheme::kFp8Channel);
  EXPECT_EQ(value("channel", 64), 3.0F);
  EXPECT_EQ(value("row", 127), 4.0F);
  EXPECT_EQ(checkpoint->linear("powers")->scheme, Scheme::kFp8Block);
  EXPECT_EQ(value("powers", 199 * 128), 4.0F);
  EXPECT_EQ(checkpoint->linear("four_d")->scheme, Scheme::kFp8Block);
  EXPECT_EQ(value("four_d", 255 * 128 + 127), 8.0F);
  EXPECT_EQ(value("deepseek", 0), 8.0F);

  f.add_f32("row.weight_scale", {3, 2}, {1, 1, 1, 1, 1, 1});
  const auto bad = opened(f.write());
  ASSERT_NE(find(*bad, "scale-shape"), nullptr);
  EXPECT_EQ(find(*bad, "scale-shape")->tensor, "row.weight_scale");
}

TEST(Dialects, Fp8BlockSizeComesFromTheConfig) {
  CheckpointFixture f;
  f.write_file("config.json", R"({"quantization_config": {"quant_method": "fp8",
                                  "weight_block_size": [64, 32]}})");
  f.fill("m.up_proj.weight", "F8_E4M3", {100, 64}, 0x38);
  f.add_f32("m.up_proj.weight_scale_inv", {2, 2}, {1, 2, 3, 4});
  const auto checkpoint = opened(f.write());
  const auto* record = checkpoint->linear("m.up_proj");
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->block_n, 64);
  EXPECT_EQ(record->block_k, 32);
  EXPECT_EQ(dequantized(*record)[99 * 64 + 63], 4.0F);
  EXPECT_EQ(checkpoint->dialect(), "fp8");
}

TEST(Dialects, C077SubByteCodesCountElements) {
  CheckpointFixture f;
  add_f_lin(f);
  f.fill(lin("weight"), "F4", {4, 32}, 0x21);
  const auto checkpoint = opened(f.write());
  const auto* record = checkpoint->linear(kLin);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->k, 32);
  const std::vector<float> values = dequantized(*record);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i % 2 == 0 ? 0.25F : 0.5F);
}

TEST(Dialects, C079LastGroupOfEightNeedsItsOwnScale) {
  CheckpointFixture f;
  f.add_linear(kLin, 4, 40);
  for (size_t row = 0; row < 4; ++row) f.tensor(lin("weight_scale")).bytes[row * 3 + 2] = 0x40;
  const std::vector<float> values = dequantized(*opened(f.write())->linear(kLin));
  EXPECT_EQ(values[30], 0.25F);
  for (size_t i = 32; i < 40; ++i) EXPECT_EQ(values[i], i % 2 == 0 ? 0.5F : 1.0F);

  f.fill(lin("weight_scale"), "F8_E4M3", {4, 2}, 0x38);
  const Finding* finding = nullptr;
  const auto checkpoint = opened(f.write());
  finding = find(*checkpoint, "group-size");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->message, HasSubstr("K is 40"));
  EXPECT_THAT(finding->message, HasSubstr("3 groups of 16 (the last of 8)"));
  EXPECT_THAT(finding->message, HasSubstr("[4, 2]"));
}

TEST(Dialects, C080C083ShapesThatFitNoTileAreSound) {
  const int64_t shapes[][2] = {{4, 48}, {80, 640}, {640, 320}, {352, 32}, {1856, 16}, {1, 16}};
  for (const auto& [n, k] : shapes) {
    CheckpointFixture f;
    f.add_linear(kLin, n, k);
    const auto checkpoint = opened(f.write());
    const auto* record = checkpoint->linear(kLin);
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->n, n);
    EXPECT_EQ(record->k, k);
    EXPECT_EQ(record->scales.info->n_elements(), n * k / 16);
  }
}

TEST(Dialects, PreQuantScaleIsPartOfTheRecord) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_bf16(lin("pre_quant_scale"), {32}, 2.0F);
  const auto checkpoint = opened(f.write());
  ASSERT_NE(checkpoint->linear(kLin), nullptr);
  EXPECT_TRUE(static_cast<bool>(checkpoint->linear(kLin)->pre_quant_scale));
  EXPECT_EQ(checkpoint->tensors_of(*checkpoint->linear(kLin)).size(), 5U);
  f.add_bf16(lin("pre_quant_scale"), {16}, 2.0F);
  EXPECT_NE(find(*opened(f.write()), "pre-quant-scale"), nullptr);
}

TEST(Dialects, UnknownWeightsAreErrorsNeverGuesses) {
  for (const char* dtype : {"I8", "U8", "I32", "F8_E5M2", "F64", "I64"}) {
    CheckpointFixture f;
    f.fill("m.up_proj.weight", dtype, {4, 16}, 0x01);
    const auto checkpoint = opened(f.write());
    const Finding* finding = find(*checkpoint, "unsupported-weight");
    ASSERT_NE(finding, nullptr) << dtype;
    EXPECT_THAT(finding->message, HasSubstr(dtype));
  }
  CheckpointFixture f;
  f.fill("m.up_proj.weight_packed", "I32", {4, 4}, 0x01);
  f.add_bf16("m.up_proj.weight_scale", {4, 1}, 1.0F);
  EXPECT_NE(find(*opened(f.write()), "unsupported-weight"), nullptr);
}

TEST(Dialects, ScalesOfTwoConventionsOnOneLinearAreRefused) {
  CheckpointFixture f;
  add_f_lin(f);
  f.add_f32(lin("weight_global_scale"), {1}, {2.0F});
  const auto checkpoint = opened(f.write());
  const Finding* finding = find(*checkpoint, "conflicting-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->tensor, lin("weight_global_scale"));
  EXPECT_EQ(checkpoint->linear(kLin), nullptr);
  f.remove(lin("weight_global_scale"));
  f.add_f32(lin("input_global_scale"), {1}, {4.0F});
  EXPECT_TRUE(with_severity(*opened(f.write()), Severity::kError).empty());
}

TEST(Dialects, PlainWeightsOfAllTypes) {
  CheckpointFixture f;
  f.add_bf16("a.weight", {2, 2}, {1, 2, 3, 4});
  f.add_f32("b.weight", {2, 2}, {1, 2, 3, 4});
  f.add("c.weight", "F16", {1, 2}, {0x00, 0x3C, 0x00, 0xC0});
  f.add_bf16("norm.weight", {4}, 1.0F);
  const auto checkpoint = opened(f.write());
  EXPECT_EQ(checkpoint->linears().size(), 3U);
  EXPECT_EQ(checkpoint->dialect(), "plain");
  EXPECT_EQ(dequantized(*checkpoint->linear("a"))[3], 4.0F);
  EXPECT_EQ(dequantized(*checkpoint->linear("b"))[2], 3.0F);
  EXPECT_EQ(dequantized(*checkpoint->linear("c"))[1], -2.0F);
}

}  // namespace
}  // namespace sextant
