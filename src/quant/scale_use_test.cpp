// Counts by hand from nvfp4.md 1.2, 4.2 and 6.2. With g = 2^-6: S = e4m3(64 * amax / 6), and the
// calibrated amax is 2688 / 64 = 42.
#include "quant/scale_use.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/nvfp4.h"

namespace sextant {
namespace {

constexpr float kG = 0x1p-6F;

std::vector<float> block(float amax, float rest = 0.0F) {
  std::vector<float> x(16, rest);
  x[3] = -amax;
  return x;
}

TEST(ScaleUse, ABlockWithinTheScaleIsWhole) {
  const ScaleUse use = nvfp4_scale_use(block(21.0F, 1.0F), kG);  // S = 224
  EXPECT_EQ(use.n_elements, 16);
  EXPECT_EQ(use.n_blocks, 1);
  EXPECT_EQ(use.n_clipped + use.n_underflowed + use.n_saturated_blocks + use.n_zero_blocks +
                use.n_subnormal_blocks,
            0);
}

TEST(ScaleUse, SaturationAndClipping) {
  // At the calibrated amax the byte is 0x7E and nothing is clipped; up to 6.5/6 of it neither.
  EXPECT_EQ(nvfp4_scale_use(block(42.0F), kG).n_saturated_blocks, 1);
  // 432, the tie between 416 and 448, goes to the even code 0x7E.
  EXPECT_EQ(nvfp4_scale_use(block(40.5F), kG).n_saturated_blocks, 1);
  EXPECT_EQ(nvfp4_scale_use(block(40.4F), kG).n_saturated_blocks, 0);
  EXPECT_EQ(nvfp4_scale_use(block(42.0F), kG).n_clipped, 0);
  EXPECT_EQ(nvfp4_scale_use(block(45.5F), kG).n_clipped, 0);  // 6.5 * 448 / 64 exactly
  EXPECT_EQ(nvfp4_scale_use(block(std::nextafter(45.5F, 100.0F)), kG).n_clipped, 1);
  EXPECT_EQ(nvfp4_scale_use(block(100.0F, 50.0F), kG).n_clipped, 16);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(nvfp4_scale_use(block(inf), kG).n_clipped, 1);
}

TEST(ScaleUse, UnderflowAndSubnormalScales) {
  // 64 * amax / 6 <= 2^-10 is scale 0: amax <= 6 * 2^-16.
  const ScaleUse zero = nvfp4_scale_use(block(6.0F * 0x1p-16F, 0x1p-17F), kG);
  EXPECT_EQ(zero.n_zero_blocks, 1);
  EXPECT_EQ(zero.n_underflowed, 16);
  EXPECT_EQ(zero.n_subnormal_blocks, 0);
  EXPECT_EQ(nvfp4_scale_use(std::vector<float>(16, 0.0F), kG).n_zero_blocks, 0);
  // Just above, the byte is 0x01, S = 2^-9: the element is t = 2^-10 (1 + e) in units of S / 6, so
  // it reads as about 3 and is not clipped. At S = 2^-9 and t just below 1.5 * 2^-9 it is 9: it is.
  const ScaleUse one = nvfp4_scale_use(block(6.0F * 0x1p-16F * 1.01F), kG);
  EXPECT_EQ(one.n_subnormal_blocks, 1);
  EXPECT_EQ(one.n_clipped, 0);
  const ScaleUse coarse = nvfp4_scale_use(block(6.0F * 0x1p-15F * 1.49F), kG);
  EXPECT_EQ(coarse.n_subnormal_blocks, 1);
  EXPECT_EQ(coarse.n_clipped, 1);
  // The smallest normal scale: 64 * amax / 6 = 2^-6.
  EXPECT_EQ(nvfp4_scale_use(block(6.0F * 0x1p-12F), kG).n_subnormal_blocks, 0);
}

TEST(ScaleUse, ARowThatEndsWithinABlock) {
  std::vector<float> row(20, 1.0F);
  row[19] = 100.0F;
  const ScaleUse use = nvfp4_scale_use(row, kG);
  EXPECT_EQ(use.n_blocks, 2);
  EXPECT_EQ(use.n_elements, 20);
  EXPECT_EQ(use.n_saturated_blocks, 1);
  EXPECT_EQ(use.n_clipped, 1);
}

TEST(ScaleUse, TheScaleByteIsThatOfTheQuantizer) {
  uint32_t state = 1;
  for (int i = 0; i < 7000; ++i) {
    std::vector<float> x(16);
    for (float& v : x) {
      state = state * 1664525U + 1013904223U;
      const auto exponent = static_cast<int>(state >> 27) - 24;  // 2^-24 to 2^7
      v = std::ldexp(static_cast<float>(static_cast<int32_t>(state << 4)) * 0x1p-31F, exponent);
    }
    if (i % 50 == 0) x[2] = std::numeric_limits<float>::quiet_NaN();
    const auto profile = static_cast<Nvfp4Profile>(i % kNvfp4Profiles);
    const float global = nvfp4_takes_divisor(profile) ? 64.0F : kG;
    uint8_t codes[8];
    uint8_t scale = 0;
    nvfp4_quantize_block(profile, x.data(), global, codes, &scale);
    EXPECT_EQ(nvfp4_block_scale(profile, x.data(), global), scale) << i;
  }
}

TEST(ScaleUse, Fp8CountsElements) {
  const std::vector<float> row = {7.0F,     7.25F, 7.2500005F, 0.0F, 0x1p-16F, 0x1p-16F * 1.01F,
                                  0x1p-12F, -8.0F};
  const ScaleUse use = fp8_scale_use(row, kG);  // 448 * g = 7, 464 * g = 7.25
  EXPECT_EQ(use.n_elements, 8);
  EXPECT_EQ(use.n_clipped, 2);
  EXPECT_EQ(use.n_underflowed, 1);  // 2^-16 / 2^-6 = 2^-10, the tie to 0
  EXPECT_EQ(use.n_subnormal, 1);    // 2^-12 / 2^-6 = 2^-6 is the smallest normal number
  EXPECT_EQ(use.n_blocks, 0);
}

}  // namespace
}  // namespace sextant
