// Stacks of experts in every layout of nvfp4.md 2.3: records by expert, values worked out by hand,
// places in the file, and what does not fit together. gpt-oss in its two golden forms holds the
// same weights, so their dequantized experts are equal.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/row_order.h"
#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

using testing::CheckpointFixture;
using testing::dequantized;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::find;
using ::testing::HasSubstr;
using testing::opened;
using testing::scanned;

const std::string kStackExperts = "model.layers.0.mlp.experts.";

std::string expert_module(int64_t expert, const std::string& projection = "gate_up_proj") {
  return kStackExperts + std::to_string(expert) + "." + projection;
}

// 2 experts, 2 rows, 32 columns in gpt-oss' own form: expert 0 has codes 1, 2 (0.5, 1.0) and scales
// 2^0 and 2^1 for its rows; expert 1 codes 3, 9 (1.5, -0.5) and 2^2, 2^-1.
void add_gpt_oss(CheckpointFixture& fixture) {
  std::vector<uint8_t> blocks(2 * 2 * 16, 0x21);
  std::fill(blocks.begin() + 32, blocks.end(), uint8_t{0x93});
  fixture.add(kStackExperts + "gate_up_proj_blocks", "U8", {2, 2, 1, 16}, blocks);
  fixture.add(kStackExperts + "gate_up_proj_scales", "U8", {2, 2, 1}, {127, 128, 129, 126});
  fixture.add_bf16(kStackExperts + "gate_up_proj_bias", {2, 2}, 1.0F);
}

std::vector<float> pairs(float even, float odd, int64_t k) {
  std::vector<float> out(static_cast<size_t>(k));
  for (size_t i = 0; i < out.size(); ++i) out[i] = i % 2 == 0 ? even : odd;
  return out;
}

std::vector<float> row_of(const LinearRecord& record, int64_t row) {
  const std::vector<float> values = dequantized(record);
  return {values.begin() + row * record.k, values.begin() + (row + 1) * record.k};
}

TEST(ExpertStack, GptOssBlocksAreOneMxfp4LinearAnExpert) {
  CheckpointFixture fixture;
  add_gpt_oss(fixture);
  const auto checkpoint = opened(fixture.write());
  ASSERT_NE(checkpoint, nullptr);
  ASSERT_EQ(checkpoint->linears().size(), 2U);
  EXPECT_EQ(checkpoint->dialect(), "mxfp4");
  const LinearRecord& first = *checkpoint->linear(expert_module(0));
  const LinearRecord& second = *checkpoint->linear(expert_module(1));
  EXPECT_EQ(first.scheme, Scheme::kMxfp4);
  EXPECT_EQ(first.n, 2);
  EXPECT_EQ(first.k, 32);
  EXPECT_FALSE(first.column_major);
  EXPECT_EQ(row_of(first, 0), pairs(0.5F, 1.0F, 32));
  EXPECT_EQ(row_of(first, 1), pairs(1.0F, 2.0F, 32));
  EXPECT_EQ(row_of(second, 0), pairs(6.0F, -2.0F, 32));
  EXPECT_EQ(row_of(second, 1), pairs(0.75F, -0.25F, 32));
  // Views: the second expert begins 2 * 16 bytes of codes and 2 scales after the first.
  EXPECT_EQ(second.weight.expert, 1);
  EXPECT_EQ(second.weight.info->begin - first.weight.info->begin, 32);
  EXPECT_EQ(second.scales.info->begin - first.scales.info->begin, 2);
  EXPECT_THAT(checkpoint->tensors_of(second), ElementsAre(kStackExperts + "gate_up_proj_blocks",
                                                          kStackExperts + "gate_up_proj_scales"));
  EXPECT_TRUE(checkpoint->findings().empty());
  EXPECT_TRUE(scanned(*checkpoint).empty());
}

// [E, N, K] in numbers 1, 2, 3, ... of BF16: expert 1, row 2, column 3 is 12 + 2 * 4 + 3 + 1 = 24.
TEST(ExpertStack, PlainRowsAreSlicesAsTheyStand) {
  CheckpointFixture fixture;
  std::vector<float> values(2 * 3 * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  fixture.add_bf16(kStackExperts + "up_proj", {2, 3, 4}, values);
  fixture.write_file("config.json", R"({"hidden_size": 4})");
  const auto checkpoint = opened(fixture.write());
  ASSERT_NE(checkpoint, nullptr);
  const LinearRecord& record = *checkpoint->linear(expert_module(1, "up_proj"));
  EXPECT_EQ(record.scheme, Scheme::kBf16);
  EXPECT_EQ(record.n, 3);
  EXPECT_EQ(record.k, 4);
  EXPECT_THAT(row_of(record, 2), ElementsAre(21, 22, 23, 24));
}

// The same tensor with hidden_size 3 is [E, in, out]: row 1 of expert 0 is its second column.
TEST(ExpertStack, PlainColumnsAreTurned) {
  for (const char* dtype : {"BF16", "F32"}) {
    CheckpointFixture fixture;
    std::vector<float> values(2 * 3 * 4);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    if (std::string_view(dtype) == "BF16")
      fixture.add_bf16(kStackExperts + "up_proj", {2, 3, 4}, values);
    else
      fixture.add_f32(kStackExperts + "up_proj", {2, 3, 4}, values);
    fixture.write_file("config.json", R"({"text_config": {"hidden_size": 3}})");
    const auto checkpoint = opened(fixture.write());
    ASSERT_NE(checkpoint, nullptr);
    const LinearRecord& record = *checkpoint->linear(expert_module(0, "up_proj"));
    EXPECT_TRUE(record.column_major);
    EXPECT_EQ(record.n, 4);
    EXPECT_EQ(record.k, 3);
    EXPECT_THAT(row_of(record, 1), ElementsAre(2, 6, 10));
    EXPECT_THAT(row_of(*checkpoint->linear(expert_module(1, "up_proj")), 3),
                ElementsAre(16, 20, 24));
  }
}

// Without a config the two projections tell: [E, 2I, H] beside [E, H, I], here H = 2I.
TEST(ExpertStack, ProjectionsTellEachOthersOrder) {
  CheckpointFixture fixture;
  fixture.add_bf16(kStackExperts + "gate_up_proj", {2, 4, 4}, 1.0F);
  fixture.add_bf16(kStackExperts + "down_proj", {2, 4, 2}, 1.0F);
  const auto rows = opened(fixture.write());
  EXPECT_FALSE(rows->linear(expert_module(1))->column_major);
  EXPECT_EQ(rows->linear(expert_module(1, "down_proj"))->k, 2);
  fixture.add_bf16(kStackExperts + "down_proj", {2, 2, 4}, 1.0F);
  const auto columns = opened(fixture.write());
  EXPECT_TRUE(columns->linear(expert_module(1))->column_major);
  EXPECT_EQ(columns->linear(expert_module(1, "down_proj"))->n, 4);
  EXPECT_EQ(columns->linear(expert_module(1, "down_proj"))->k, 2);
}

TEST(ExpertStack, AnOrderThatNothingTellsIsAFindingAndNoLinear) {
  CheckpointFixture fixture;
  fixture.add_bf16(kStackExperts + "up_proj", {2, 4, 4}, 1.0F);
  fixture.write_file("config.json", R"({"hidden_size": 4})");
  const auto checkpoint = opened(fixture.write());
  const Finding* finding = find(*checkpoint, "ambiguous-expert-order");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(finding->layer, 0);
  EXPECT_TRUE(checkpoint->linears().empty());
}

// ModelOpt in Linear order: codes 0x21 (0.5, 1.0), scale bytes 0x38 (1.0) and in expert 1 0x40
// (2.0), one g an expert: 0.5 and 0.25.
TEST(ExpertStack, ModelOptRowsWithOneGlobalScaleAnExpert) {
  for (const std::string dot : {"_", "."}) {
    CheckpointFixture fixture;
    const std::string stack = kStackExperts + "down_proj";
    fixture.fill(dot == "." ? stack + ".weight" : stack, "U8", {2, 3, 16}, 0x21);
    std::vector<uint8_t> scales(2 * 3 * 2, 0x38);
    std::fill(scales.begin() + 6, scales.end(), uint8_t{0x40});
    fixture.add(stack + dot + "weight_scale", "F8_E4M3", {2, 3, 2}, scales);
    fixture.add_f32(stack + dot + "weight_scale_2", {2}, {0.5F, 0.25F});
    fixture.add_f32(stack + dot + "input_scale", {2, 1}, {0.125F, 0.0625F});
    const auto checkpoint = opened(fixture.write());
    ASSERT_NE(checkpoint, nullptr);
    EXPECT_EQ(checkpoint->dialect(), "modelopt");
    ASSERT_EQ(checkpoint->linears().size(), 2U);
    const LinearRecord& first = *checkpoint->linear(expert_module(0, "down_proj"));
    const LinearRecord& second = *checkpoint->linear(expert_module(1, "down_proj"));
    EXPECT_EQ(row_of(first, 2), pairs(0.25F, 0.5F, 32));
    EXPECT_EQ(row_of(second, 0), pairs(0.25F, 0.5F, 32));
    EXPECT_EQ(first.input_scale, 0.125F);
    EXPECT_EQ(second.input_scale, 0.0625F);
    EXPECT_TRUE(checkpoint->findings().empty());
    EXPECT_EQ(checkpoint->tensors_of(first).size(), 4U);
    EXPECT_EQ(checkpoint->slices_of(second).size(), 4U);
  }
}

// vLLM's own names: [E, 2] are the divisors of gate and up, here 2 and 4.
TEST(ExpertStack, TwoGlobalScalesAnExpertAreThoseOfTheHalves) {
  CheckpointFixture fixture;
  fixture.fill(kStackExperts + "w13_weight_packed", "U8", {2, 4, 8}, 0x21);
  fixture.fill(kStackExperts + "w13_weight_scale", "F8_E4M3", {2, 4, 1}, 0x38);
  fixture.add_f32(kStackExperts + "w13_weight_global_scale", {2, 2}, {2, 2, 2, 4});
  const auto checkpoint = opened(fixture.write());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->dialect(), "compressed-tensors");
  const LinearRecord& record = *checkpoint->linear(expert_module(1, "w13"));
  ASSERT_EQ(record.ranges.size(), 2U);
  EXPECT_EQ(record.ranges[1].row_begin, 2);
  EXPECT_EQ(row_of(record, 1), pairs(0.25F, 0.5F, 16));
  EXPECT_EQ(row_of(record, 2), pairs(0.125F, 0.25F, 16));
  EXPECT_EQ(checkpoint->linear(expert_module(0, "w13"))->ranges.size(), 1U);
  // Divisors 2 and 4: multipliers 0.5 and 0.25.
  const Finding* ratio = find(*checkpoint, "fused-scale-ratio");
  ASSERT_NE(ratio, nullptr);
  EXPECT_EQ(ratio->value, 2.0);
  EXPECT_EQ(ratio->expert, 1);
  EXPECT_EQ(ratio->count, 1);
  // gpt-oss has its gate and up rows in turn: halves would be wrong.
  fixture.write_file("config.json", R"({"model_type": "gpt_oss"})");
  const auto in_turn = opened(fixture.write());
  EXPECT_NE(find(*in_turn, "ambiguous-scale-split"), nullptr);
  EXPECT_EQ(in_turn->linear(expert_module(1, "w13")), nullptr);
}

// BMM order, one expert after another: codes [E, in/2, out] with in = 16 and out = 2. Byte
// (j, row) = 0x10 * (row + 1) + 2 in expert 0: even columns are 1.0 (code 2), odd ones 0.5 or 1.0.
TEST(ExpertStack, ModelOptColumnsAreTurned) {
  CheckpointFixture fixture;
  std::vector<uint8_t> codes;
  for (int i = 0; i < 8; ++i) codes.insert(codes.end(), {0x12, 0x22});
  for (int i = 0; i < 8; ++i) codes.insert(codes.end(), {0x07, static_cast<uint8_t>(i)});
  fixture.add(kStackExperts + "gate_up_proj", "U8", {2, 8, 2}, codes);
  fixture.add(kStackExperts + "gate_up_proj_weight_scale", "F8_E4M3", {2, 1, 2},
              {0x38, 0x40, 0x48, 0x38});
  fixture.add_f32(kStackExperts + "gate_up_proj_weight_scale_2", {}, {0.5F});
  const auto checkpoint = opened(fixture.write());
  ASSERT_NE(checkpoint, nullptr);
  const LinearRecord& first = *checkpoint->linear(expert_module(0));
  EXPECT_TRUE(first.column_major);
  EXPECT_EQ(first.n, 2);
  EXPECT_EQ(first.k, 16);
  EXPECT_EQ(row_of(first, 0), pairs(0.5F, 0.25F, 16));
  EXPECT_EQ(row_of(first, 1), pairs(1.0F, 1.0F, 16));
  const LinearRecord& second = *checkpoint->linear(expert_module(1));
  EXPECT_EQ(row_of(second, 0), pairs(12.0F, 0.0F, 16));  // code 7 is 6, scale 4, g 0.5
  // Codes 0 to 7 in even columns: 0, 0.5, 1, 1.5, 2, 3, 4, 6, times 0.5.
  EXPECT_THAT(row_of(second, 1),
              ElementsAre(0, 0, 0.25, 0, 0.5, 0, 0.75, 0, 1, 0, 1.5, 0, 2, 0, 3, 0));
  EXPECT_THAT(first.weight.info->shape, ElementsAre(8, 2));
  const RowOrdered row(first, 1, 2);
  EXPECT_EQ(row.record().n, 1);
  EXPECT_THAT(dequantized(row.record()), Each(1.0F));
}

TEST(ExpertStack, ANanScaleIsFoundInItsExpertAtItsByte) {
  CheckpointFixture fixture;
  add_gpt_oss(fixture);
  fixture.tensor(kStackExperts + "gate_up_proj_scales").bytes[3] = 0xFF;
  const auto checkpoint = opened(fixture.write());
  const std::vector<Finding> findings = scanned(*checkpoint);
  ASSERT_EQ(findings.size(), 1U);
  const Finding& f = findings[0];
  EXPECT_EQ(f.slug, "nan-block-scale");
  EXPECT_EQ(f.tensor, kStackExperts + "gate_up_proj_scales");
  EXPECT_EQ(f.layer, 0);
  EXPECT_EQ(f.expert, 1);
  EXPECT_THAT(f.index, ElementsAre(1, 0));
  EXPECT_EQ(f.offset, checkpoint->tensor(f.tensor).info->begin + 3);
  EXPECT_THAT(f.instances, ElementsAre(f.tensor + "[1]"));
}

// [E, in/16, out] = [2, 2, 3]: byte 8 is expert 1, group 0, row 2.
TEST(ExpertStack, ANanScaleOfColumnsHasItsRowAndGroup) {
  CheckpointFixture fixture;
  fixture.fill(kStackExperts + "down_proj", "U8", {2, 16, 3}, 0x21);
  fixture.fill(kStackExperts + "down_proj_weight_scale", "F8_E4M3", {2, 2, 3}, 0x38);
  fixture.tensor(kStackExperts + "down_proj_weight_scale").bytes[8] = 0x7F;
  fixture.add_f32(kStackExperts + "down_proj_weight_scale_2", {}, {0.5F});
  const auto checkpoint = opened(fixture.write());
  const std::vector<Finding> findings = scanned(*checkpoint);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].expert, 1);
  EXPECT_THAT(findings[0].index, ElementsAre(2, 0));
  EXPECT_EQ(findings[0].offset, checkpoint->tensor(findings[0].tensor).info->begin + 8);
}

TEST(ExpertStack, ABadGlobalScaleIsFoundInItsExpert) {
  CheckpointFixture fixture;
  fixture.fill(kStackExperts + "down_proj", "U8", {3, 2, 16}, 0x21);
  fixture.fill(kStackExperts + "down_proj_weight_scale", "F8_E4M3", {3, 2, 2}, 0x38);
  fixture.add_f32(kStackExperts + "down_proj_weight_scale_2", {3}, {0.5F, 0.5F, 0.0F});
  const auto checkpoint = opened(fixture.write());
  const Finding* f = find(*checkpoint, "bad-scalar-scale");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->expert, 2);
  EXPECT_EQ(f->count, 1);
  EXPECT_EQ(f->offset, checkpoint->tensor(f->tensor).info->begin + 8);
  // One that all share is one finding.
  fixture.add_f32(kStackExperts + "down_proj_weight_scale_2", {}, {0.0F});
  const auto shared = opened(fixture.write());
  EXPECT_EQ(find(*shared, "bad-scalar-scale")->count, 1);
}

TEST(ExpertStack, ScalesThatDoNotFitAreOneFindingWithTheFirstExpertThatLacksSome) {
  const struct {
    std::vector<int64_t> shape;
    int64_t expert;
  } kCases[] = {{{3, 2, 1}, 0}, {{2, 2, 2}, 2}, {{3, 1, 2}, 0}, {{12}, 0}};
  for (const auto& c : kCases) {
    CheckpointFixture fixture;
    fixture.fill(kStackExperts + "down_proj", "U8", {3, 2, 16}, 0x21);
    fixture.fill(kStackExperts + "down_proj_weight_scale", "F8_E4M3", c.shape, 0x38);
    fixture.add_f32(kStackExperts + "down_proj_weight_scale_2", {}, {0.5F});
    const auto checkpoint = opened(fixture.write());
    const Finding* f = find(*checkpoint, "group-size");
    ASSERT_NE(f, nullptr);
    EXPECT_EQ(f->severity, Severity::kError);
    EXPECT_EQ(f->expert, c.expert);
    EXPECT_EQ(f->count, 1);
    EXPECT_THAT(f->message, HasSubstr("[3, 2, 2] or [3, 1, 16]"));
    EXPECT_EQ(f->offset, checkpoint->tensor(f->tensor).info->begin);
    EXPECT_TRUE(checkpoint->linears().empty());
  }
}

TEST(ExpertStack, MissingAndLonelyScalesAreFindings) {
  CheckpointFixture fixture;
  fixture.fill(kStackExperts + "down_proj", "U8", {3, 2, 16}, 0x21);
  EXPECT_NE(find(*opened(fixture.write()), "missing-block-scale"), nullptr);
  fixture.fill(kStackExperts + "down_proj_weight_scale", "F8_E4M3", {3, 2, 2}, 0x38);
  EXPECT_NE(find(*opened(fixture.write()), "missing-global-scale"), nullptr);
  fixture.add_f32(kStackExperts + "down_proj_weight_scale_2", {2}, {0.5F, 0.5F});
  const auto few = opened(fixture.write());
  ASSERT_NE(find(*few, "scale-shape"), nullptr);
  EXPECT_EQ(find(*few, "scale-shape")->expert, 2);
  fixture.remove(kStackExperts + "down_proj");
  EXPECT_NE(find(*opened(fixture.write()), "orphan-scale"), nullptr);
}

TEST(ExpertStack, FormsThatAreNotReadAreRefusedByName) {
  CheckpointFixture fixture;
  fixture.fill(kStackExperts + "down_proj", "U8", {2, 16, 3}, 0x21);
  fixture.add_f32(kStackExperts + "down_proj_weight_scale", {2, 2, 3},
                  std::vector<float>(12, 1.0F));
  fixture.add_f32(kStackExperts + "down_proj_weight_scale_2", {}, {0.5F});
  const auto floats = opened(fixture.write());
  ASSERT_NE(find(*floats, "scale-dtype"), nullptr);
  EXPECT_THAT(find(*floats, "scale-dtype")->message, HasSubstr("columns first"));
  EXPECT_TRUE(floats->linears().empty());
  // Groups of 32 would have to be split.
  fixture.fill(kStackExperts + "down_proj_weight_scale", "F8_E4M3", {2, 1, 3}, 0x38);
  fixture.write_file("config.json", R"({"quantization_config": {"quant_method": "modelopt",
    "quant_algo": "NVFP4", "group_size": 32}})");
  EXPECT_TRUE(opened(fixture.write())->linears().empty());
}

// FP8 with a scale an expert: 0x38 is 1.0 and 0x40 2.0.
TEST(ExpertStack, Fp8StacksAreReadToo) {
  CheckpointFixture fixture;
  std::vector<uint8_t> weight(2 * 2 * 4, 0x38);
  weight[9] = 0x40;  // expert 1, row 0, column 1
  fixture.add(kStackExperts + "up_proj_weight", "F8_E4M3", {2, 2, 4}, weight);
  fixture.add_f32(kStackExperts + "up_proj_weight_scale", {2, 1, 1}, {0.5F, 0.25F});
  fixture.write_file("config.json", R"({"hidden_size": 4})");
  const auto checkpoint = opened(fixture.write());
  const LinearRecord& record = *checkpoint->linear(expert_module(1, "up_proj"));
  EXPECT_EQ(record.scheme, Scheme::kFp8Tensor);
  EXPECT_THAT(row_of(record, 0), ElementsAre(0.25F, 0.5F, 0.25F, 0.25F));
}

// A convolution, a router under experts, and experts one by one are what they were.
TEST(ExpertStack, WhatIsNoStackIsLeftAlone) {
  CheckpointFixture fixture;
  fixture.add_bf16("model.visual.patch_embed.weight", {2, 3, 4, 4}, 1.0F);
  fixture.add_bf16(kStackExperts + "gate.weight", {4, 8}, 1.0F);
  fixture.add_bf16(kStackExperts + "e_score", {2, 4, 8}, 1.0F);
  fixture.add_linear(expert_module(0, "up_proj"), 4, 32);
  const auto checkpoint = opened(fixture.write());
  EXPECT_EQ(checkpoint->linears().size(), 2U);
  EXPECT_NE(checkpoint->linear(kStackExperts + "gate"), nullptr);
  EXPECT_EQ(checkpoint->linear(expert_module(0, "up_proj"))->weight.expert, -1);
}

TEST(ExpertStack, AnExpertThatIsStoredTwiceIsAFinding) {
  CheckpointFixture fixture;
  add_gpt_oss(fixture);
  fixture.add_linear(expert_module(1), 2, 32);
  const auto checkpoint = opened(fixture.write());
  const Finding* f = find(*checkpoint, "duplicate-tensor");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->expert, 1);
}

TEST(ExpertStack, MoreExpertsThanAnyModelHasAreRefused) {
  CheckpointFixture fixture;
  fixture.fill(kStackExperts + "up_proj", "BF16", {(1 << 18) + 1, 1, 2}, 0);
  fixture.write_file("config.json", R"({"hidden_size": 2})");
  const auto checkpoint = opened(fixture.write());
  EXPECT_NE(find(*checkpoint, "unsupported-weight"), nullptr);
  EXPECT_TRUE(checkpoint->linears().empty());
}

// The full golden set beside the checkout, or where SEXTANT_GOLDEN says.
TEST(ExpertStack, GptOssHasTheSameWeightsInBothForms) {
  const char* place = std::getenv("SEXTANT_GOLDEN");
  const std::filesystem::path golden = place != nullptr
                                           ? std::filesystem::path(place)
                                           : std::filesystem::path(SX_SOURCE_DIR) / "tests/golden";
  if (!std::filesystem::exists(golden / "gpt-oss-mxfp4"))
    GTEST_SKIP() << "the compact golden set has dense models only";
  const auto packed = opened(golden / "gpt-oss-mxfp4");
  const auto plain = opened(golden / "gpt-oss-bf16");
  ASSERT_NE(packed, nullptr);
  ASSERT_NE(plain, nullptr);
  int n = 0;
  for (const auto& [module, record] : packed->linears()) {
    if (record.weight.expert < 0) continue;
    EXPECT_EQ(record.scheme, Scheme::kMxfp4);
    const LinearRecord* other = plain->linear(module);
    ASSERT_NE(other, nullptr) << module;
    EXPECT_TRUE(other->column_major);
    EXPECT_EQ(dequantized(record), dequantized(*other)) << module;
    ++n;
  }
  EXPECT_EQ(n, 4 * 6 * 2);
  // The dumps beside the models are noted as files that are not read.
  for (const Checkpoint* checkpoint : {packed.get(), plain.get()})
    for (const Finding& finding : checkpoint->findings())
      EXPECT_EQ(finding.slug, "unread-file") << finding.message;
}

}  // namespace
}  // namespace sextant
