// NVFP4 quantizers against blocks whose bytes tools/golden/nvfp4_snr.py gave, placed where the
// order of roundings decides; dequantization against values computed the same way; properties.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/golden_test.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

constexpr Nvfp4Profile kAll[] = {Nvfp4Profile::kA,          Nvfp4Profile::kB, Nvfp4Profile::kT,
                                 Nvfp4Profile::kC,          Nvfp4Profile::kD, Nvfp4Profile::kE,
                                 Nvfp4Profile::kFourOverSix};

class Blocks : public testing::TestWithParam<Nvfp4Profile> {};

TEST_P(Blocks, EqualTheReferenceByteForByte) {
  const Nvfp4Profile profile = GetParam();
  const auto lines = golden_lines("nvfp4_blocks.txt");
  ASSERT_EQ(lines.size(), 1140U);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& words = lines[i];
    ASSERT_EQ(words.size(), 10U);
    const std::vector<float> x = hex_floats(words[2]);
    const float global = hex_f32(words[nvfp4_takes_divisor(profile) ? 0 : 1]);
    uint8_t block[9];
    nvfp4_quantize_block(profile, x.data(), global, block + 1, block);
    const std::string& expected = words[3 + static_cast<size_t>(profile)];
    const bool undefined = expected.substr(2) == "-";
    EXPECT_EQ(to_hex(block, undefined ? 1 : 9), undefined ? expected.substr(0, 2) : expected)
        << "line " << i + 1 << " of nvfp4_blocks.txt, global " << global;
  }
}

// A matrix is its blocks: rows with a stride, and two rows at once.
TEST_P(Blocks, MatricesAreTheirBlocks) {
  const Nvfp4Profile profile = GetParam();
  const auto lines = golden_lines("nvfp4_blocks.txt");
  ASSERT_GT(lines.size(), 60U);
  const float global = 37.5F;
  constexpr int64_t kRows = 3, kBlocks = 5, kStride = 90;
  std::vector<float> x(kRows * kStride, std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t b = 0; b < kBlocks; ++b) {
      const auto block = hex_floats(lines[static_cast<size_t>(i * kBlocks + b)][2]);
      std::copy(block.begin(), block.end(), x.begin() + i * kStride + b * 16);
    }
  std::vector<uint8_t> codes(kRows * 50, 0xAA), scales(kRows * 6, 0xAA);
  nvfp4_quantize(profile, {x.data(), kRows, kBlocks * 16, kStride}, global,
                 {codes.data(), kRows, kBlocks * 8, 50}, {scales.data(), kRows, kBlocks, 6});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t b = 0; b < kBlocks; ++b) {
      uint8_t block[8], scale = 0;
      nvfp4_quantize_block(profile, &x[static_cast<size_t>(i * kStride + b * 16)], global, block,
                           &scale);
      EXPECT_EQ(scales[static_cast<size_t>(i * 6 + b)], scale);
      EXPECT_EQ(to_hex(&codes[static_cast<size_t>(i * 50 + b * 8)], 8), to_hex(block, 8));
    }
    for (int64_t j = 40; j < 50; ++j) EXPECT_EQ(codes[static_cast<size_t>(i * 50 + j)], 0xAA);
    EXPECT_EQ(scales[static_cast<size_t>(i * 6 + 5)], 0xAA);
  }
}

// What stands in a block of zeros, of either sign (nvfp4.md 1.7).
TEST_P(Blocks, ZeroBlocks) {
  const Nvfp4Profile profile = GetParam();
  const std::array<const char*, kNvfp4Profiles> scales = {"00", "00", "00", "20", "38", "08", "00"};
  for (const float zero : {0.0F, -0.0F}) {
    const std::vector<float> x(16, zero);
    uint8_t block[9];
    nvfp4_quantize_block(profile, x.data(), 1.0F, block + 1, block);
    EXPECT_EQ(to_hex(block, 1), scales[static_cast<size_t>(profile)]);
    for (int i = 1; i < 9; ++i) EXPECT_EQ(block[i] & 0x77, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Nvfp4, Blocks, testing::ValuesIn(kAll), [](const auto& tested) {
  std::string name(nvfp4_profile_name(tested.param));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

TEST(Nvfp4, ProfilesByName) {
  for (const Nvfp4Profile profile : kAll)
    EXPECT_EQ(nvfp4_profile_from_name(nvfp4_profile_name(profile)), profile);
  EXPECT_EQ(nvfp4_profile_name(Nvfp4Profile::kT), "T");
  EXPECT_EQ(nvfp4_profile_name(Nvfp4Profile::kFourOverSix), "four-over-six");
  EXPECT_FALSE(nvfp4_profile_from_name("F").has_value());
}

TEST(Nvfp4, ValuesEqualTheReferenceBitForBit) {
  const auto lines = golden_lines("nvfp4_values.txt");
  ASSERT_EQ(lines.size(), 400U);
  for (const auto& words : lines) {
    const auto code = static_cast<uint8_t>(hex(words[0]));
    const auto packed = static_cast<uint8_t>(code << 4 | 1);
    const auto scale = static_cast<uint8_t>(hex(words[1]));
    const float global = hex_f32(words[2]);
    for (const bool is_divisor : {false, true}) {
      float out[2];
      nvfp4_dequantize({&packed, 1, 1}, {&scale, 1, 1}, {global, is_divisor}, {out, 1, 2});
      const uint32_t expected = hex(words[is_divisor ? 4 : 3]);
      EXPECT_EQ(std::bit_cast<uint32_t>(out[1]), expected) << words[0] << " " << words[1];
    }
  }
}

// Blocks of 32 (a few ModelOpt files) and a last block that is not whole.
TEST(Nvfp4, OtherBlockSizesAndRaggedRows) {
  std::vector<uint8_t> codes(40, 0x22);  // 1, 1
  const std::vector<uint8_t> scales = {0x38, 0x40, 0x48};
  std::vector<float> out(80);
  nvfp4_dequantize({codes.data(), 1, 40}, {scales.data(), 1, 3}, {0.5F, false}, {out.data(), 1, 80},
                   32);
  EXPECT_EQ(out[0], 0.5F);
  EXPECT_EQ(out[31], 0.5F);
  EXPECT_EQ(out[32], 1.0F);
  EXPECT_EQ(out[79], 2.0F);
  nvfp4_dequantize({codes.data(), 1, 10}, {scales.data(), 1, 2}, {0.5F, true}, {out.data(), 1, 20});
  EXPECT_EQ(out[15], 2.0F);
  EXPECT_EQ(out[16], 4.0F);
}

TEST(Nvfp4, GlobalScales) {
  EXPECT_EQ(nvfp4_multiplier(2688.0F), 1.0F);
  EXPECT_EQ(nvfp4_multiplier(0.67578125F), 0.67578125F / 2688.0F);
  EXPECT_EQ(nvfp4_divisor(0.67578125F), 2688.0F / 0.67578125F);
  EXPECT_EQ(nvfp4_global_scale(Nvfp4Profile::kFourOverSix, 3.0F).value, 512.0F);
  EXPECT_TRUE(nvfp4_global_scale(Nvfp4Profile::kC, 1.0F).is_divisor);
  EXPECT_FALSE(nvfp4_global_scale(Nvfp4Profile::kD, 1.0F).is_divisor);
  for (const Nvfp4Profile profile : kAll)  // a tensor of zeros
    EXPECT_EQ(nvfp4_global_scale(profile, 0.0F).value, 1.0F);
  // A tensor so small that g would not be a normal number keeps finite scales and values.
  for (const Nvfp4Profile profile : {Nvfp4Profile::kC, Nvfp4Profile::kD}) {
    std::vector<float> x(16, 0.0F);
    x[3] = 1e-38F;
    const Nvfp4Global global = nvfp4_global_scale(profile, amax_of(x.data(), 16));
    uint8_t codes[8], scale = 0;
    nvfp4_quantize_block(profile, x.data(), global.value, codes, &scale);
    float out[16];
    nvfp4_dequantize({codes, 1, 8}, {&scale, 1, 1}, global, {out, 1, 16});
    EXPECT_NEAR(out[3], 1e-38F, 1e-39F);
    EXPECT_EQ(out[4], 0.0F);
  }
}

TEST(Nvfp4, ReciprocalFlushesBothWays) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rcp_ftz(3.0F), 1.0F / 3.0F);
  EXPECT_EQ(rcp_ftz(0x1p-126F), 0x1p126F);
  EXPECT_EQ(rcp_ftz(0x1.fffffcp-127F), inf);
  EXPECT_EQ(rcp_ftz(-1e-40F), -inf);
  EXPECT_EQ(rcp_ftz(0x1p126F), 0x1p-126F);
  EXPECT_EQ(std::bit_cast<uint32_t>(rcp_ftz(-0x1.000002p126F)), 0x80000000U);
  EXPECT_EQ(std::bit_cast<uint32_t>(rcp_ftz(inf)), 0U);
  EXPECT_TRUE(std::isnan(rcp_ftz(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Nvfp4, AmaxFindsNan) {
  std::vector<float> x = {1.0F, -3.0F, 2.0F};
  EXPECT_EQ(amax_of(x.data(), 3), 3.0F);
  EXPECT_EQ(amax_of(x.data(), 0), 0.0F);
  x[2] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(amax_of(x.data(), 3), std::numeric_limits<float>::infinity());
  x[0] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(amax_of(x.data(), 3)));
}

// ------------------------------------------------------------------ properties

std::vector<float> arbitrary_block(float magnitude) {
  std::vector<float> x(16);
  for (float& value : x)
    value = static_cast<float>(*rc::gen::inRange(-100000, 100001)) * 1e-5F * magnitude;
  return x;
}

// With its own amax, an element is off by at most half the widest step of its code (1 of 6) plus
// the clipping that a block scale rounded down by at most 1/17 allows, plus rounding in float32.
RC_GTEST_PROP(Nvfp4, ErrorsAreBounded, ()) {
  const std::vector<float> x = arbitrary_block(std::ldexp(1.0F, *rc::gen::inRange(-20, 20)));
  const float amax = amax_of(x.data(), 16);
  for (const Nvfp4Profile profile : kAll) {
    const Nvfp4Global global = nvfp4_global_scale(profile, amax);
    uint8_t codes[8], scale = 0;
    float out[16];
    nvfp4_quantize_block(profile, x.data(), global.value, codes, &scale);
    nvfp4_dequantize({codes, 1, 8}, {&scale, 1, 1}, global, {out, 1, 16});
    for (int i = 0; i < 16; ++i) {
      RC_ASSERT(std::abs(out[i] - x[static_cast<size_t>(i)]) <= amax * (1.07F / 6.0F));
      RC_ASSERT(out[i] * x[static_cast<size_t>(i)] >= 0.0F);  // never the other sign
    }
  }
}

// Within one block, larger elements never get a smaller value.
RC_GTEST_PROP(Nvfp4, MonotoneWithinABlock, ()) {
  const std::vector<float> x = arbitrary_block(4.0F);
  const float global = std::ldexp(1.0F, *rc::gen::inRange(-3, 8));
  for (const Nvfp4Profile profile : kAll) {
    uint8_t codes[8], scale = 0;
    nvfp4_quantize_block(profile, x.data(), global, codes, &scale);
    if (e4m3_decode(scale) == 0.0F) continue;  // B and D: codes of such a block mean nothing
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < 16; ++j)
        if (x[i] <= x[j])
          RC_ASSERT(e2m1_decode(nibble(codes, static_cast<int64_t>(i))) <=
                    e2m1_decode(nibble(codes, static_cast<int64_t>(j))));
  }
}

// Negated input: the same scale, every code but zeros with the other sign.
RC_GTEST_PROP(Nvfp4, Antisymmetric, ()) {
  std::vector<float> x = arbitrary_block(2.0F);
  for (const Nvfp4Profile profile : kAll) {
    uint8_t codes[8], negated[8], scale = 0, scale_negated = 0;
    nvfp4_quantize_block(profile, x.data(), 5.0F, codes, &scale);
    for (float& value : x) value = -value;
    nvfp4_quantize_block(profile, x.data(), 5.0F, negated, &scale_negated);
    RC_ASSERT(scale == scale_negated);
    for (int64_t i = 0; i < 16; ++i)
      if (x[static_cast<size_t>(i)] != 0.0F)
        RC_ASSERT((nibble(codes, i) ^ nibble(negated, i)) == 8);
  }
}

// Quantizing what a block decodes to, with the same global scale, gives it back: the largest code
// is 6 in every such block, so the scale is found again, and every quotient is near its code.
RC_GTEST_PROP(Nvfp4, DecodedBlocksAreFixedPoints, ()) {
  const auto scale = static_cast<uint8_t>(*rc::gen::inRange(8, 0x7F));
  const float g = std::ldexp(static_cast<float>(*rc::gen::inRange(1024, 2048)), -25);
  std::vector<uint8_t> codes(8);
  for (uint8_t& b : codes) b = static_cast<uint8_t>(*rc::gen::inRange(0, 256));
  codes[0] = static_cast<uint8_t>((codes[0] & 0xF0) | 7);
  float x[16];
  nvfp4_dequantize({codes.data(), 1, 8}, {&scale, 1, 1}, {g, false}, {x, 1, 16});
  for (const Nvfp4Profile profile : kAll) {
    if (profile == Nvfp4Profile::kFourOverSix) continue;
    const float global = nvfp4_takes_divisor(profile) ? 1.0F / g : g;
    uint8_t again[8], scale_again = 0;
    nvfp4_quantize_block(profile, x, global, again, &scale_again);
    RC_ASSERT(scale_again == scale);
    for (int64_t i = 0; i < 16; ++i)
      RC_ASSERT(e2m1_decode(nibble(again, i)) == e2m1_decode(nibble(codes.data(), i)));
  }
}

}  // namespace
}  // namespace sextant
