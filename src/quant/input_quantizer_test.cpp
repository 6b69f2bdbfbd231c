// Inputs as engines quantize them: vectors of nvfp4.md section 8 and arithmetic by hand.
#include "quant/input_quantizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace sextant {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Quantized {
  std::vector<float> values;
  std::vector<float> multipliers;
};

Quantized quantize(const InputQuantizer& quantizer, std::vector<float> x, int64_t rows) {
  const auto k = static_cast<int64_t>(x.size()) / rows;
  Quantized out{std::vector<float>(x.size(), -1.0F),
                std::vector<float>(static_cast<size_t>(rows), -1.0F)};
  quantize_input(quantizer, Mat<const float>(x.data(), rows, k),
                 Mat<float>(out.values.data(), rows, k), out.multipliers);
  return out;
}

InputQuantizer nvfp4(InputScale scale, float divisor = 1.0F, float multiplier = 1.0F,
                     Nvfp4Profile profile = Nvfp4Profile::kA) {
  return {InputForm::kNvfp4, scale, false, profile, divisor, multiplier};
}

// V1: 0 .25 .5 .75 1 1.25 1.5 1.75 2 2.5 3 3.5 4 5 5.5 6 under G = 1 has scale 0x38 (1) and codes
// 00 21 22 43 44 65 66 77.
const std::vector<float> kP = {0, .25F, .5F, .75F, 1, 1.25F, 1.5F, 1.75F,
                               2, 2.5F, 3,   3.5F, 4, 5,     5.5F, 6};
const std::vector<float> kPValues = {0, 0, .5F, 1, 1, 1, 1.5F, 2, 2, 2, 3, 4, 4, 4, 6, 6};

TEST(InputQuantizer, one_block_with_G_1_is_vector_V1) {
  const Quantized q = quantize(nvfp4(InputScale::kStatic), kP, 1);
  EXPECT_EQ(q.values, kPValues);
  EXPECT_EQ(q.multipliers, std::vector<float>{1.0F});
}

// Power-of-two scales change nothing but the multiplier: G = 2^4 with values 2^-4 times as large.
TEST(InputQuantizer, values_are_without_g_and_the_multiplier_has_it) {
  std::vector<float> x = kP;
  for (float& v : x) v *= 0.0625F;
  const Quantized q = quantize(nvfp4(InputScale::kStatic, 16.0F, 0.0625F), x, 1);
  EXPECT_EQ(q.values, kPValues);
  EXPECT_EQ(q.multipliers, std::vector<float>{0.0625F});
}

// Amax 2688 * 2^-3 for the call: G = 8. Row 1 alone has 2688 * 2^-5.
TEST(InputQuantizer, dynamic_scales_of_the_call_and_of_each_row) {
  std::vector<float> x(32, 0.0F);
  x[0] = 336.0F;
  x[16] = 84.0F;
  x[17] = 14.0F;
  // The call's G: S = e4m3(8 * 84 / 6) = 112, 84 / (112 / 8) = 6, 14 / 14 = 1.
  const Quantized call = quantize(nvfp4(InputScale::kTensor), x, 2);
  EXPECT_EQ(call.multipliers, (std::vector<float>{0.125F, 0.125F}));
  EXPECT_EQ(call.values[0], 6.0F * 448.0F);
  EXPECT_EQ(call.values[16], 6.0F * 112.0F);
  EXPECT_EQ(call.values[17], 1.0F * 112.0F);
  const Quantized row = quantize(nvfp4(InputScale::kToken), x, 2);
  EXPECT_EQ(row.multipliers, (std::vector<float>{0.125F, 0.03125F}));
  EXPECT_EQ(row.values[16], 6.0F * 448.0F);
  EXPECT_EQ(row.values[17], 1.0F * 448.0F);
}

TEST(InputQuantizer, rows_of_zeros_have_multiplier_1) {
  for (const InputScale scale : {InputScale::kTensor, InputScale::kToken}) {
    const Quantized q = quantize(nvfp4(scale), std::vector<float>(16, 0.0F), 1);
    EXPECT_EQ(q.multipliers, std::vector<float>{1.0F});
    EXPECT_EQ(q.values, std::vector<float>(16, 0.0F));
  }
}

// V10: amax 8 under a calibrated amax of 0.67578125 is clipped to it.
TEST(InputQuantizer, what_is_beyond_the_calibrated_amax_is_clipped_to_it) {
  std::vector<float> x(16, 0.0F);
  x[0] = 8.0F;
  x[1] = -8.0F;
  const float g = 0.67578125F / 2688.0F;
  const Quantized q = quantize(nvfp4(InputScale::kStatic, 2688.0F / 0.67578125F, g), x, 1);
  EXPECT_EQ(q.values[0], 2688.0F);
  EXPECT_EQ(q.values[1], -2688.0F);
  EXPECT_FLOAT_EQ(q.values[0] * q.multipliers[0], 0.67578125F);
}

// A row that ends within a block counts as filled up with zeros; nothing beyond it is written.
TEST(InputQuantizer, a_last_block_that_is_not_full) {
  std::vector<float> x(18, 0.0F);
  std::copy(kP.begin(), kP.end(), x.begin());
  x[16] = 6.0F;
  x[17] = 2.4F;
  const Quantized q = quantize(nvfp4(InputScale::kStatic), x, 1);
  EXPECT_EQ(q.values[15], 6.0F);
  EXPECT_EQ(q.values[16], 6.0F);
  EXPECT_EQ(q.values[17], 2.0F);
}

// V16: A drops NaN, which becomes +6 times the scale; measured scales do not hide it.
TEST(InputQuantizer, NaN_is_dropped_by_A_and_kept_by_measured_scales) {
  std::vector<float> x = kP;
  x[3] = kNaN;
  EXPECT_EQ(quantize(nvfp4(InputScale::kStatic), x, 1).values[3], 6.0F);
  for (const InputScale scale : {InputScale::kTensor, InputScale::kToken})
    EXPECT_TRUE(std::isnan(quantize(nvfp4(scale), x, 1).multipliers[0]));
  const InputQuantizer fp8{InputForm::kFp8, InputScale::kStatic};
  EXPECT_TRUE(std::isnan(quantize(fp8, x, 1).values[3]));
  const InputQuantizer int8{InputForm::kInt8, InputScale::kStatic};
  EXPECT_TRUE(std::isnan(quantize(int8, x, 1).values[3]));
}

// B divides an underflowed block by zero: codes of 6 under a scale of 0 (V27), which are zeros. C
// takes a scale of 0.125 for it, under which everything is code 0 (V29).
TEST(InputQuantizer, an_underflowed_block_is_zero) {
  std::vector<float> x(16, 0.0F);
  x[0] = 1e-4F;
  x[1] = -5e-5F;
  for (const Nvfp4Profile profile : {Nvfp4Profile::kA, Nvfp4Profile::kB, Nvfp4Profile::kC})
    EXPECT_EQ(quantize(nvfp4(InputScale::kStatic, 1.0F, 1.0F, profile), x, 1).values,
              std::vector<float>(16, 0.0F));
}

// x / g to E4M3: 17 * 16 = 272 lies between 256 and 288, and 272 is the tie that goes to even.
TEST(InputQuantizer, fp8_with_a_scale_and_without) {
  const std::vector<float> x = {17.0F, 1000.0F, -0.03F, kInf};
  const InputQuantizer fixed{InputForm::kFp8, InputScale::kStatic, false, Nvfp4Profile::kA, 1.0F,
                             0.0625F};
  const Quantized q = quantize(fixed, x, 1);
  EXPECT_EQ(q.values, (std::vector<float>{256.0F, 448.0F, -0.46875F, 448.0F}));
  EXPECT_EQ(q.multipliers[0], 0.0625F);
  const InputQuantizer token{InputForm::kFp8, InputScale::kToken};
  const Quantized t = quantize(token, {-896.0F, 1.0F, 0.0F, 0.0F}, 2);
  EXPECT_EQ(t.multipliers, (std::vector<float>{2.0F, 1.0F}));
  EXPECT_EQ(t.values, (std::vector<float>{-448.0F, 0.5F, 0.0F, 0.0F}));
}

// amax 127 in the first block: scale 1, halves to even; amax 254 in the second: scale 2.
TEST(InputQuantizer, int8_a_block_of_16) {
  std::vector<float> x(32, 0.0F);
  x[0] = -127.0F;
  x[1] = 2.5F;
  x[2] = 3.4F;
  x[16] = 254.0F;
  x[17] = 3.0F;
  const Quantized q = quantize({InputForm::kInt8, InputScale::kStatic}, x, 1);
  EXPECT_EQ(q.multipliers[0], 1.0F);
  EXPECT_EQ(q.values[0], -127.0F);
  EXPECT_EQ(q.values[1], 2.0F);
  EXPECT_EQ(q.values[2], 3.0F);
  EXPECT_EQ(q.values[16], 254.0F);
  EXPECT_EQ(q.values[17], 4.0F);  // 3 / 2 = 1.5 to the even 2
}

// 1 + 2^-9 is 1 in BF16; the amax of a call is that of the rounded values.
TEST(InputQuantizer, BF16_comes_first_where_it_is_asked_for) {
  std::vector<float> x(16, 0.0F);
  x[0] = 1.0F + 0x1p-9F;
  InputQuantizer quantizer = nvfp4(InputScale::kTensor);
  EXPECT_EQ(quantize(quantizer, x, 1).multipliers[0], (1.0F + 0x1p-9F) / 2688.0F);
  quantizer.from_bf16 = true;
  EXPECT_EQ(quantize(quantizer, x, 1).multipliers[0], 1.0F / 2688.0F);
}

}  // namespace
}  // namespace sextant
