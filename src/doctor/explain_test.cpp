// Expected values: docs/nvfp4.md 3.1.4, 4.1 and 4.2, and arithmetic by hand where a comment shows
// it.
#include "doctor/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sextant {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ExplainQuestion ask(const std::string& name, double value, const std::string& typed,
                    double half_unit) {
  ExplainQuestion question;
  question.name = name;
  question.value = value;
  question.typed = typed;
  question.half_unit = half_unit;
  return question;
}

// q_a_proj of layer 0: the number, as five digits.
ExplainQuestion five_digits() { return ask("input_scale", 0.00025141, "0.00025141", 5e-9); }

TEST(Explain, AmaxUnderBothConventions) {
  const Explanation all = explain_scale(five_digits());
  ASSERT_EQ(all.readings.size(), 2U);
  EXPECT_NEAR(all.readings[0].amax, 0.67579, 5e-7);  // 2688 * 0.00025141 = 0.67579008
  EXPECT_NEAR(all.readings[1].amax, 1.07e7, 1e4);
  EXPECT_NEAR(all.readings[0].G, 3977.6, 0.05);
  EXPECT_EQ(all.readings[1].G, 0.00025141);
  EXPECT_EQ(all.accepted, 0U);
  EXPECT_FALSE(all.readings[0].rejected);
  EXPECT_TRUE(all.readings[1].rejected);
  EXPECT_FALSE(all.against_name);
}

TEST(Explain, FiveDigitsOnTheBf16Grid) {
  const Explanation all = explain_scale(five_digits());
  const GridTest& grid = all.readings[0].grid;
  EXPECT_EQ(grid.nearest, 173.0 / 256);
  EXPECT_NEAR(grid.stored, 2.514067e-4, 5e-11);
  EXPECT_TRUE(grid.few_digits);
  EXPECT_TRUE(grid.to_digits);
  EXPECT_TRUE(grid.passed);
  // 2 * 5e-9 * 2688 = 2.688e-5 of a spacing of 2^-8: 0.688 %.
  EXPECT_NEAR(grid.chance, 0.00688, 0.00001);
  // 0.67579008 is 8.8e-6 = 148 ulp (2^-24) away: too far by the bits.
  EXPECT_FALSE(grid.by_bits);
  // 2688 / 0.00025141 = 10691699 lies between 163 and 164 times 65536, 9331 from the nearer.
  EXPECT_EQ(all.readings[1].grid.nearest, 163.0 * 65536);
  EXPECT_FALSE(all.readings[1].grid.passed);
}

TEST(Explain, EveryDigitOnTheBf16GridByBits) {
  // float32(173/256 / 2688), all digits: within 4 ulp of the BF16 value after the product.
  const auto stored = static_cast<float>(173.0 / 256 / 2688);
  const Explanation all = explain_scale(ask("input_scale", stored, "", 0));
  EXPECT_FALSE(all.readings[0].grid.few_digits);
  EXPECT_TRUE(all.readings[0].grid.by_bits);
  EXPECT_TRUE(all.readings[0].grid.passed);
  EXPECT_NEAR(all.readings[0].grid.chance, 1.4e-4, 0.05e-4);
  // 2^-8 / 256 of the way to the next BF16 value is 256 ulp: off the grid.
  const double off = (173.0 / 256 + 0x1p-16) / 2688;
  EXPECT_FALSE(explain_scale(ask("input_scale", off, "", 0)).readings[0].grid.passed);
}

TEST(Explain, OneDigitSaysNothing) {
  const Explanation all = explain_scale(ask("", 1, "1", 0.5));
  EXPECT_EQ(all.readings[0].grid.chance, 1);
  EXPECT_EQ(all.accepted, std::nullopt);
  EXPECT_THAT(all.verdict, HasSubstr("cannot say"));
}

TEST(Explain, WhereTheCliffsStart) {
  const Explanation all = explain_scale(five_digits());
  const ScaleLimits& right = all.readings[0].limits;
  EXPECT_NEAR(right.saturates_above, 0.67579, 5e-6);
  EXPECT_NEAR(right.nan_above, 0.69993, 5e-6);
  EXPECT_NEAR(std::log2(right.subnormal_below / right.saturates_above), -14.81, 0.005);
  EXPECT_NEAR(std::log2(right.zero_up_to / right.saturates_above), -18.81, 0.005);
  const ScaleLimits& wrong = all.readings[1].limits;
  EXPECT_NEAR(wrong.zero_up_to, 23.31, 0.005);
  EXPECT_NEAR(wrong.smallest_code_below, 69.9, 0.05);
  EXPECT_NEAR(wrong.subnormal_below, 373, 0.5);
}

TEST(Explain, NormBound) {
  ExplainQuestion question = five_digits();
  question.k = 7168;
  const Explanation open = explain_scale(question);
  EXPECT_NEAR(*open.readings[0].needs_norm_max, 0.008, 0.0005);
  EXPECT_NEAR(*open.readings[1].needs_norm_max, 1.26e5, 0.005e5);
  EXPECT_THAT(open.readings[1].reason, HasSubstr("max|w| >= 1.26e5"));
  question.norm_max = 0.5;  // bound factor 84.7
  const Explanation wide = explain_scale(question);
  EXPECT_NEAR(*wide.norm_bound, 0.5 * 84.7, 0.05);
  EXPECT_FALSE(wide.readings[0].rejected);
  EXPECT_TRUE(wide.readings[1].rejected);
  // 84.664 * 0.0079 = 0.66885, and 2 % more is 0.68222: still allowed. 0.0078 gives 0.67359: not.
  question.norm_max = 0.0079;
  EXPECT_FALSE(explain_scale(question).readings[0].rejected);
  question.norm_max = 0.0078;
  const Explanation tight = explain_scale(question);
  EXPECT_TRUE(tight.readings[0].rejected);
  EXPECT_EQ(tight.accepted, std::nullopt);
}

TEST(Explain, VerdictOfTheFiveDigits) {
  const Explanation all = explain_scale(five_digits());
  for (const char* figure : {"healthy ModelOpt multiplier", "0.67579 ", "0.67578125 = 173/256",
                             "G = 3977.6", "23.31", "exact zeros, not NaN"})
    EXPECT_THAT(all.verdict, HasSubstr(figure));
  std::string paths;
  for (const EnginePath& path : all.engines) paths += path.path + ": " + path.effect + "\n";
  for (const char* figure : {"69.9", "373", "0.69993", "1.0357", "exactly zero", "unused"})
    EXPECT_THAT(paths, HasSubstr(figure));
}

TEST(Explain, TheDivisorOfTheSameAmax) {
  const Explanation all = explain_scale(ask("input_global_scale", 3977.6, "3977.6", 0.05));
  EXPECT_EQ(all.accepted, 1U);
  EXPECT_FALSE(all.against_name);
  EXPECT_NEAR(all.readings[1].amax, 0.67578, 1e-5);  // 2688 / 3977.6
  EXPECT_EQ(all.readings[1].G, 3977.6);
  EXPECT_EQ(all.readings[1].grid.nearest, 173.0 / 256);
  EXPECT_TRUE(all.readings[1].grid.passed);  // 2688 / 0.67578125 = 3977.618
  // A bare number: amax 1.07e7 as a multiplier leaves the divisor only.
  EXPECT_EQ(explain_scale(ask("", 3977.6, "3977.6", 0.05)).accepted, 1U);
}

TEST(Explain, NameThatTheNumberContradicts) {
  const Explanation all = explain_scale(ask("input_scale", 3977.6, "3977.6", 0.05));
  EXPECT_EQ(all.accepted, 1U);
  EXPECT_TRUE(all.against_name);
  EXPECT_THAT(all.verdict, HasSubstr("its name says multiplier"));
}

TEST(Explain, WeightScales) {
  // 4.65e-5 * 2688 = 0.125; as a divisor 5.78e7. Wrong convention: 1/g^2 = 4.6e8.
  const Explanation all = explain_scale(ask("weight_scale_2", 4.65e-5, "4.65e-5", 5e-8));
  EXPECT_EQ(all.accepted, 0U);
  EXPECT_TRUE(all.readings[1].rejected);
  EXPECT_THAT(all.verdict, HasSubstr("4.6e8"));
  // Between 0.05 and 5 the number cannot say; the name does.
  EXPECT_EQ(explain_scale(ask("weight_scale_2", 0.5, "", 0)).accepted, 0U);
  EXPECT_EQ(explain_scale(ask("weight_global_scale", 0.5, "", 0)).accepted, 1U);
  EXPECT_TRUE(explain_scale(ask("weight_scale_2", 21505, "", 0)).against_name);
}

TEST(Explain, CacheScales) {
  const Explanation all = explain_scale(ask("k_scale", 1, "1", 0.5));
  EXPECT_EQ(all.readings[0].amax, 2688);
  EXPECT_EQ(all.readings[1].amax, 448);
  // NVFP4 cache, missing scale 1.0 (2.6): full precision from 0.094, zero up to 5.9e-3.
  EXPECT_NEAR(all.readings[0].limits.subnormal_below, 0.094, 0.0005);
  EXPECT_NEAR(all.readings[0].limits.zero_up_to, 5.9e-3, 0.05e-3);
  EXPECT_THAT(all.verdict, HasSubstr("multiplier whatever wrote it"));
}

TEST(Explain, FallbackOfUncalibratedExperts) {
  const Explanation all = explain_scale(ask("input_scale", 1.8601190e-4, "1.8601190e-4", 5e-12));
  EXPECT_THAT(all.notes, ::testing::Contains(HasSubstr("(C12)")));
  EXPECT_THAT(explain_scale(five_digits()).notes, Not(::testing::Contains(HasSubstr("(C12)"))));
}

TEST(Explain, NoConventionMakesSense) {
  const Explanation all = explain_scale(ask("input_scale", 1e-12, "1e-12", 5e-13));
  EXPECT_EQ(all.accepted, std::nullopt);
  EXPECT_THAT(all.verdict, HasSubstr("no plausible scale"));
}

struct FaultCase {
  double value;
  ScaleFault fault;
  const char* multiplier;  // in what engines make of it, as 1.7 and 3.2 (C3) have it
  const char* divisor;
};

TEST(Explain, NumbersThatAreNoScale) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const FaultCase cases[] = {
      {0, ScaleFault::kZero, "multiplier: vLLM CUDA, FlashInfer, TensorRT-LLM: G = inf",
       "divisor: vLLM CUDA: G = 0"},
      {1e-40, ScaleFault::kDenormal, "multiplier: vLLM CUDA, FlashInfer, TensorRT-LLM: G = inf",
       "divisor: vLLM CUDA: G = 0"},
      {1e-60, ScaleFault::kZero, "G = inf", "G = 0"},
      {kInf, ScaleFault::kInfinite, "multiplier: vLLM CUDA: G = 0",
       "divisor: vLLM CUDA, FlashInfer, TensorRT-LLM: G = inf"},
      {1e39, ScaleFault::kInfinite, "G = 0", "G = inf"},
      {std::nan(""), ScaleFault::kNan, "0x7F: NaN everywhere", "0x7F: NaN everywhere"},
      {-1, ScaleFault::kNegative, "0xB8 for G = -1", "unverified"},
  };
  for (const FaultCase& one : cases) {
    const Explanation all = explain_scale(ask("input_scale", one.value, "", 0));
    EXPECT_EQ(all.fault, one.fault) << one.value;
    EXPECT_TRUE(all.readings.empty());
    EXPECT_THAT(all.verdict, HasSubstr("C3"));
    std::string paths;
    for (const EnginePath& path : all.engines) paths += path.path + ": " + path.effect + "\n";
    EXPECT_THAT(paths, HasSubstr(one.multiplier));
    EXPECT_THAT(paths, HasSubstr(one.divisor));
  }
  const Explanation dead = explain_scale(ask("weight_scale_2", 0, "0", 0));
  EXPECT_THAT(dead.engines[0].effect, HasSubstr("silently dead layer"));
  EXPECT_THAT(dead.engines[1].effect, HasSubstr("NaN where the sum is 0"));
  EXPECT_FALSE(explain_scale(ask("k_scale", 0, "0", 0)).engines.empty());
  // 2^-126 is the smallest normal float32.
  EXPECT_EQ(explain_scale(ask("", 0x1p-126, "", 0)).fault, ScaleFault::kNone);
}

// Extremes of what is a scale: no infinity, NaN or crash in what follows from it.
TEST(Explain, LargestAndSmallestScales) {
  for (const double value : {0x1p-126, 3.4e38, 1e-30, 1e30}) {
    const Explanation all = explain_scale(ask("", value, "", 0));
    EXPECT_EQ(all.accepted, std::nullopt);
    for (const Hypothesis& reading : all.readings) {
      EXPECT_TRUE(reading.rejected);
      EXPECT_TRUE(std::isfinite(reading.amax) && std::isfinite(reading.grid.nearest));
    }
  }
}

TEST(Explain, SnrTable) {
  const auto rows = snr_table();
  ASSERT_EQ(rows.size(), 23U);
  EXPECT_EQ(rows.front().log2_ratio, 12);
  EXPECT_EQ(rows[5].gauss_db, 9.57);  // log2 r = 2
  EXPECT_EQ(rows[15].outlier_channels_db, 16.45);
  EXPECT_EQ(rows.back().outlier_zero_blocks_percent, 100);
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i].log2_ratio, rows[i - 1].down_to);
}

TEST(Explain, Figures) {
  EXPECT_EQ(scale_figure(10691699, 3), "1.07e7");
  EXPECT_EQ(scale_figure(2e-5, 2), "2e-5");
  EXPECT_EQ(scale_figure(0.67579008, 5), "0.67579");
  EXPECT_EQ(bf16_figure(0.67578125), "0.67578125 = 173/256");
  EXPECT_EQ(bf16_figure(3), "3");
  EXPECT_EQ(bf16_figure(0x1p-20), "9.53674e-7");
}

}  // namespace
}  // namespace sextant
