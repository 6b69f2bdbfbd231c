// The counts against a count of one code at a time.
#include "doctor/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "checkpoint/directory.h"
#include "checkpoint/testing/fixture.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

struct Bytes {
  std::vector<uint8_t> codes, scales;
};

// Random codes with some zero blocks, zero scales and whole zero rows.
Bytes random_bytes(int64_t n, int64_t k, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes b{std::vector<uint8_t>(static_cast<size_t>(n * k / 2)),
          std::vector<uint8_t>(static_cast<size_t>(n * ((k + 15) / 16)))};
  for (auto& byte : b.codes) byte = static_cast<uint8_t>(random());
  for (auto& byte : b.scales) byte = static_cast<uint8_t>(random() % 0x7F);
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k / 2; ++i)
      if (row % 7 == 3 || (i / 8 + row) % 5 == 0)
        b.codes[static_cast<size_t>(row * k / 2 + i)] = (i % 2 == 0) ? 0x80 : 0x08;
  return b;
}

CodeStatistics counted_slowly(const Bytes& b, int64_t k, int64_t row_begin, int64_t row_end) {
  CodeStatistics s;
  const int64_t columns = (k + 15) / 16;
  for (int64_t row = row_begin; row < row_end; ++row) {
    bool row_is_zero = true;
    for (int64_t g = 0; g < columns; ++g) {
      bool zero = true;
      bool full = false;
      for (int64_t i = 16 * g; i < std::min(k, 16 * (g + 1)); ++i) {
        const uint8_t byte = b.codes[static_cast<size_t>((row * k + i) / 2)];
        const uint8_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
        ++(i % 2 == 0 ? s.low : s.high)[code];
        if (e2m1_decode(code) != 0) zero = false;
        if (std::abs(e2m1_decode(code)) == 6) full = true;
      }
      const uint8_t scale = b.scales[static_cast<size_t>(row * columns + g)];
      ++s.scale_bytes[scale];
      s.n_zero_blocks += zero;
      s.n_full_blocks += full;
      if (scale == 0 && !zero && s.n_lost_blocks++ == 0) {
        s.first_lost_row = row;
        s.first_lost_group = g;
      }
      row_is_zero = row_is_zero && zero;
    }
    if (row_is_zero && s.n_zero_rows++ == 0) s.first_zero_row = row;
  }
  s.n_blocks = (row_end - row_begin) * columns;
  s.n_codes = (row_end - row_begin) * k;
  return s;
}

void expect_equal(const CodeStatistics& a, const CodeStatistics& b) {
  EXPECT_EQ(a.n_codes, b.n_codes);
  EXPECT_EQ(a.n_blocks, b.n_blocks);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_EQ(a.scale_bytes, b.scale_bytes);
  EXPECT_EQ(a.n_zero_blocks, b.n_zero_blocks);
  EXPECT_EQ(a.n_full_blocks, b.n_full_blocks);
  EXPECT_EQ(a.n_zero_rows, b.n_zero_rows);
  EXPECT_EQ(a.first_zero_row, b.first_zero_row);
  EXPECT_EQ(a.n_lost_blocks, b.n_lost_blocks);
  EXPECT_EQ(a.first_lost_row, b.first_lost_row);
  EXPECT_EQ(a.first_lost_group, b.first_lost_group);
}

TEST(CodeStatistics, EqualsACountOfOneCodeAtATimeForEveryWidth) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 16},
                             {3, 8},
                             {4, 24},
                             {5, 32},
                             {9, 48},
                             {7, 56},
                             {16, 64},
                             {11, 112},
                             {33, 128},
                             {13, 144},
                             {64, 576},
                             {20, 1040}}) {
    SCOPED_TRACE(::testing::Message() << n << " x " << k);
    const Bytes bytes = random_bytes(n, k, static_cast<uint32_t>(n * 1000 + k));
    testing::CheckpointFixture fixture;
    fixture.add("m.weight", "U8", {n, k / 2}, bytes.codes);
    fixture.add("m.weight_scale", "F8_E4M3", {n, (k + 15) / 16}, bytes.scales);
    fixture.add_f32("m.weight_scale_2", {}, {0.001F});
    const auto checkpoint = Checkpoint::open(fixture.write());
    ASSERT_TRUE(checkpoint);
    const LinearRecord* linear = (*checkpoint)->linear("m");
    ASSERT_NE(linear, nullptr);
    expect_equal(code_statistics(*linear, 0, n), counted_slowly(bytes, k, 0, n));
    CodeStatistics sum = code_statistics(*linear, 0, n / 2);
    add(sum, code_statistics(*linear, n / 2, n));
    expect_equal(sum, counted_slowly(bytes, k, 0, n));
    expect_equal(PackedStatistics(sum).unpack(), sum);
  }
}

// A linear of more than 2^32 blocks, and the largest and smallest that each count can be.
TEST(PackedStatistics, KeepsEveryCountWhole) {
  EXPECT_FALSE(PackedStatistics());
  CodeStatistics s;
  expect_equal(PackedStatistics(s).unpack(), s);
  s.n_blocks = (int64_t{5} << 32) + 1;
  s.n_codes = 16 * s.n_blocks;
  s.scale_bytes[0x7D] = s.n_blocks - 300;
  s.scale_bytes[0x7E] = 300;
  s.scale_bytes[0xFF] = INT64_MAX;
  s.low[0] = 127;
  s.low[15] = 128;
  s.high[3] = int64_t{1} << 35;
  s.n_zero_blocks = s.n_blocks;
  s.first_zero_row = 0;
  s.first_lost_group = int64_t{1} << 40;
  s.rms = 0.3;
  const PackedStatistics packed = s;
  EXPECT_TRUE(packed);
  EXPECT_LT(packed.n_bytes(), 100);
  expect_equal(packed.unpack(), s);
  EXPECT_EQ(packed.unpack().rms, 0.3);
  EXPECT_EQ(packed.rms(), 0.3);
}

// 4 x 32 codes 1, 2 (0.5 and 1) under scales 1.0: mean square 0.625.
TEST(CodeStatistics, RmsOfCodesTimesScalesByHand) {
  testing::CheckpointFixture fixture;
  testing::add_f_lin(fixture);
  const auto checkpoint = Checkpoint::open(fixture.write());
  ASSERT_TRUE(checkpoint);
  const CodeStatistics s =
      code_statistics(*(*checkpoint)->linear("model.layers.0.mlp.down_proj"), 0, 4);
  EXPECT_NEAR(s.rms, std::sqrt(0.625), 1e-12);
  EXPECT_EQ(s.low[1], 64);
  EXPECT_EQ(s.high[2], 64);
}

}  // namespace
}  // namespace sextant
