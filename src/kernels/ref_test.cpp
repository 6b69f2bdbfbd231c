// The reference by hand: small integers and powers of two, whose results anybody can check on
// paper. And the choice of a table by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/test_data.h"
#include "quant/bf16.h"

namespace sextant {
namespace {

const Ops& ref() { return *available_ops().back(); }

TEST(Select, ListsRefLastAndNamesWhatThereIs) {
  EXPECT_STREQ(available_ops().back()->name, "ref");
  const auto best = select_ops("");
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(*best, available_ops().front());
  EXPECT_EQ(*select_ops("auto"), available_ops().front());
  for (const Ops* ops : available_ops()) {
    EXPECT_EQ(*select_ops(ops->name), ops);
    EXPECT_TRUE(ops->pack && ops->linear && ops->rms_norm && ops->rope && ops->attention &&
                ops->silu_mul && ops->add && ops->add_bias && ops->embed && ops->store_kv)
        << ops->name;
  }
  const auto unknown = select_ops("sse9");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Code::kUnsupported);
  EXPECT_NE(unknown.error().text.find("\"sse9\""), std::string::npos);
  EXPECT_NE(unknown.error().text.find("ref"), std::string::npos);
}

// Row 0: codes 1.0 and -6.0 under scale 2 (0x40), row multiplier 0.5: (1*3 + -6*0.25) * 2 * 0.5.
TEST(Ref, Nvfp4ByHand) {
  ThreadPool pool(1);
  TestLinear w = random_linear(WeightForm::kNvfp4, 1, 16, 1);
  std::memset(w.weight.data(), 0, 8);
  w.weight.data()[0] = std::byte{0xF2};  // element 0 in the low nibble: 2 is 1.0; 15 is -6.0
  w.scales.data()[0] = std::byte{0x40};
  w.multiplier = {0.5F};
  GapMat x(1, 16);
  for (float& value : x.view.row(0)) value = 7.0F;
  x.view.at(0, 0) = 3.0F;
  x.view.at(0, 1) = 0.25F;
  const GapMat y = run_linear(ref(), ref().pack(w.source(), pool), x.view, ActForm::kF32, pool);
  EXPECT_EQ(y.view.at(0, 0), 1.5F);
}

// K = 40: three scales a row; elements 32 to 39 use the third (C079).
TEST(Ref, PartialLastGroupUsesItsOwnScale) {
  ThreadPool pool(1);
  TestLinear w = random_linear(WeightForm::kNvfp4, 4, 40, 1);
  std::memset(w.weight.data(), 0x22, 80);  // all 1.0
  for (int64_t i = 0; i < 12; ++i)
    w.scales.data()[i] = static_cast<std::byte>(0x38 + 8 * (i % 3));  // 1, 2, 4
  w.multiplier.clear();
  GapMat x(1, 40);
  for (float& value : x.view.row(0)) value = 1.0F;
  for (const Ops* ops : available_ops()) {
    const GapMat y = run_linear(*ops, ops->pack(w.source(), pool), x.view, ActForm::kF32, pool);
    for (int64_t r = 0; r < 4; ++r)
      EXPECT_EQ(y.view.at(0, r), 16 * 1 + 16 * 2 + 8 * 4) << ops->name;
  }
}

// MXFP4: 32 elements a scale, 2^(byte - 127).
TEST(Ref, Mxfp4ByHand) {
  ThreadPool pool(1);
  TestLinear w = random_linear(WeightForm::kMxfp4, 1, 64, 1);
  std::memset(w.weight.data(), 0x33, 32);  // all 1.5
  w.scales.data()[0] = std::byte{127};
  w.scales.data()[1] = std::byte{130};
  w.multiplier.clear();
  GapMat x(1, 64);
  for (float& value : x.view.row(0)) value = 2.0F;
  for (const Ops* ops : available_ops()) {
    const GapMat y = run_linear(*ops, ops->pack(w.source(), pool), x.view, ActForm::kF32, pool);
    EXPECT_EQ(y.view.at(0, 0), 32 * 3 + 32 * 3 * 8) << ops->name;
  }
}

// 2 x 2 blocks over 3 x 3 FP8 weights of 1.0 (0x38): ragged in both directions.
TEST(Ref, Fp8BlocksByHand) {
  ThreadPool pool(1);
  TestLinear w = random_fp8_blocks(3, 3, 2, 2, DType::kF32, 1);
  std::memset(w.weight.data(), 0x38, 9);
  const float scales[] = {1.0F, 10.0F, 100.0F, 1000.0F};
  std::memcpy(w.scales.data(), scales, sizeof scales);
  GapMat x(1, 3);
  for (int64_t j = 0; j < 3; ++j) x.view.at(0, j) = static_cast<float>(j + 1);
  for (const Ops* ops : available_ops()) {
    const GapMat y = run_linear(*ops, ops->pack(w.source(), pool), x.view, ActForm::kF32, pool);
    EXPECT_EQ(y.view.at(0, 0), 33.0F) << ops->name;
    EXPECT_EQ(y.view.at(0, 1), 33.0F) << ops->name;
    EXPECT_EQ(y.view.at(0, 2), 3300.0F) << ops->name;
  }
}

// a16: 1 + 2^-9 rounds to 1 in BF16 before the product.
TEST(Ref, Bf16ActivationsAreRoundedFirst) {
  ThreadPool pool(1);
  TestLinear w = random_linear(WeightForm::kF32, 1, 1, 1);
  const float weight = 512.0F;
  std::memcpy(w.weight.data(), &weight, 4);
  w.multiplier.clear();
  GapMat x(1, 1);
  x.view.at(0, 0) = 1.0F + 0x1p-9F;
  for (const Ops* ops : available_ops()) {
    const PackedLinear packed = ops->pack(w.source(), pool);
    EXPECT_EQ(run_linear(*ops, packed, x.view, ActForm::kF32, pool).view.at(0, 0), 513.0F);
    EXPECT_EQ(run_linear(*ops, packed, x.view, ActForm::kBf16, pool).view.at(0, 0), 512.0F);
  }
}

TEST(Ref, RmsNormByHand) {
  ThreadPool pool(1);
  float x[] = {3.0F, 4.0F};  // mean square 12.5
  const std::vector<float> weight = {2.0F, -1.0F};
  ref().rms_norm({x, 1, 2}, weight, 3.5F, {x, 1, 2}, pool);  // sqrt(16) = 4
  EXPECT_EQ(x[0], 1.5F);
  EXPECT_EQ(x[1], -1.0F);
}

// A quarter turn takes (a, b) to (-b, a); dims past the rotated ones stay.
TEST(Ref, RopeByHand) {
  ThreadPool pool(1);
  for (const Ops* ops : available_ops()) {
    float x[] = {1.0F, 2.0F, 3.0F, 4.0F, 9.0F, 5.0F, 6.0F, 7.0F, 8.0F, 10.0F};
    const float cos[] = {0.0F, 1.0F};
    const float sin[] = {1.0F, 0.0F};
    ops->rope({x, 1, 10}, 2, 5, {cos, 1, 2}, {sin, 1, 2}, pool);
    const float want[] = {-3.0F, 2.0F, 1.0F, 4.0F, 9.0F, -7.0F, 6.0F, 5.0F, 8.0F, 10.0F};
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(x[i], want[i]) << ops->name << " " << i;
  }
}

// Two keys with equal scores: the mean of their values. A window of one: the last value.
TEST(Ref, AttentionByHand) {
  ThreadPool pool(1);
  const float keys[] = {1.0F, 0.0F, 1.0F, 0.0F};
  const float values[] = {2.0F, 4.0F, 6.0F, 16.0F};
  const void* k_pages[] = {keys};
  const void* v_pages[] = {values};
  AttentionSeq seq{0, 1, 1, {k_pages, v_pages, DType::kF32, 16}};
  AttentionParams params{1, 1, 2, 0.5F, 0};
  for (const Ops* ops : available_ops()) {
    const float q[] = {5.0F, 1.0F};
    float out[2] = {};
    ops->attention({q, 1, 2}, {&seq, 1}, params, {out, 1, 2}, pool);
    EXPECT_EQ(out[0], 4.0F) << ops->name;
    EXPECT_EQ(out[1], 10.0F) << ops->name;
    AttentionParams windowed = params;
    windowed.window = 1;
    ops->attention({q, 1, 2}, {&seq, 1}, windowed, {out, 1, 2}, pool);
    EXPECT_EQ(out[0], 6.0F) << ops->name;
    EXPECT_EQ(out[1], 16.0F) << ops->name;
  }
}

TEST(Ref, SiluByHand) {
  ThreadPool pool(1);
  const float gate[] = {0.0F, 100.0F};
  const float up[] = {5.0F, 2.0F};
  float out[2] = {};
  ref().silu_mul({gate, 1, 2}, {up, 1, 2}, {out, 1, 2}, pool);
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[1], 200.0F);
}

}  // namespace
}  // namespace sextant
