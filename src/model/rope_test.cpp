// Rotary frequencies against arithmetic by hand (each value derived beside it); whole models with
// every kind are in golden_test.cpp.
#include "model/blocks/rope.h"

#include <cmath>

#include <gtest/gtest.h>

namespace sextant {
namespace {

std::vector<float> inverse(const RopeConfig& rope, int64_t head_dim, int64_t max_position,
                           int64_t n_positions) {
  const RopeFrequencies frequencies(rope, head_dim, max_position);
  std::vector<float> out(static_cast<size_t>(frequencies.n_pairs()));
  frequencies.inverse(n_positions, out);
  return out;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(double{found[i]}, expected[i], 1e-6 * expected[i]) << "pair " << i;
}

TEST(Rope, default_and_linear) {
  RopeConfig rope;  // theta 10000
  expect_near(inverse(rope, 8, 100, 50), {1, 0.1, 0.01, 0.001});
  rope.kind = RopeKind::kLinear;
  rope.factor = 4;
  expect_near(inverse(rope, 8, 100, 50), {0.25, 0.025, 0.0025, 0.00025});
}

TEST(Rope, llama3) {
  RopeConfig rope;
  rope.kind = RopeKind::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position = 40;
  // Waves of 2 pi, 20 pi, ...: the first is shorter than 40 / 4, the others longer than 40 / 1.
  expect_near(inverse(rope, 8, 320, 50), {1, 0.0125, 0.00125, 0.000125});
  // Theta 16, 4 dims: 0.25 has a wave of 8 pi = 25.13, between 10 and 40. smooth = (40 / 25.13 - 1)
  // / 3 = 0.197183; 0.802817 * 0.25 / 8 + 0.197183 * 0.25 = 0.0743838.
  rope.theta = 16;
  expect_near(inverse(rope, 4, 320, 50), {1, 0.0743838126711737});
}

TEST(Rope, yarn) {
  RopeConfig rope;
  rope.kind = RopeKind::kYarn;
  rope.factor = 4;
  rope.original_max_position = 64;
  rope.beta_fast = 4;
  rope.beta_slow = 1;
  // Pairs that turn 4 times and once: 8 ln(64 / (4 * 2 pi)) / (2 ln 10000) = 0.405940, and 1.008.
  // Truncated 0 and 2: the ramp over pairs is 0, 1/2, 1, 1.
  expect_near(inverse(rope, 8, 256, 50), {1, 0.1 * (0.125 + 0.5), 0.0025, 0.00025});
  const RopeFrequencies frequencies(rope, 8, 256);
  EXPECT_NEAR(double{frequencies.attention_factor()}, 1.138629436111989, 1e-7);  // 0.1 ln 4 + 1
  // Not truncated: pair 1 has a ramp of (1 - 0.405940) / (1.008 - 0.405940) = 0.986712.
  rope.truncate = false;
  expect_near(inverse(rope, 8, 256, 50), {1, 0.025996591586511953, 0.0025, 0.00025});
}

TEST(Rope, yarn_attention_factor) {
  RopeConfig rope;
  rope.kind = RopeKind::kYarn;
  rope.factor = 4;
  rope.original_max_position = 64;
  rope.mscale = 1;
  rope.mscale_all_dim = 0.5;  // (0.1 ln 4 + 1) / (0.05 ln 4 + 1)
  EXPECT_NEAR(double{RopeFrequencies(rope, 8, 256).attention_factor()}, 1.0648216253695715, 1e-7);
  rope.attention_factor = 0.75;  // said outright: wins
  EXPECT_EQ(RopeFrequencies(rope, 8, 256).attention_factor(), 0.75F);
}

TEST(Rope, dynamic_counts_the_longest_position_of_the_call) {
  RopeConfig rope;
  rope.kind = RopeKind::kDynamic;
  rope.factor = 2;
  expect_near(inverse(rope, 8, 24, 24), {1, 0.1, 0.01, 0.001});
  // 48 positions: theta (2 * 48 / 24 - 1)^(8/6) = 43267.49; its -1/4 power is 0.0693361.
  expect_near(inverse(rope, 8, 24, 48),
              {1, 0.06933612743506347, 0.004807498567691361, 0.000333333333});
}

TEST(Rope, fill_is_cos_and_sin_of_position_times_frequency) {
  RopeConfig rope;
  rope.kind = RopeKind::kYarn;
  rope.factor = 1;
  rope.original_max_position = 64;
  rope.attention_factor = 2;
  const RopeFrequencies frequencies(rope, 4, 64);
  std::vector<float> scratch(2);
  std::vector<float> cos(6);
  std::vector<float> sin(6);
  frequencies.fill(5, 3, scratch, {cos.data(), 3, 2}, {sin.data(), 3, 2});
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t i = 0; i < 2; ++i) {
      const double angle = static_cast<double>(5 + r) * (i == 0 ? 1.0 : 0.01);
      EXPECT_NEAR(double{cos[static_cast<size_t>(2 * r + i)]}, 2 * std::cos(angle), 1e-6);
      EXPECT_NEAR(double{sin[static_cast<size_t>(2 * r + i)]}, 2 * std::sin(angle), 1e-6);
    }
}

}  // namespace
}  // namespace sextant
