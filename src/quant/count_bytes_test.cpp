// Counts of bytes against one byte at a time.
#include "quant/count_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace sextant {
namespace {

std::array<int64_t, 256> counted_slowly(const std::vector<uint8_t>& bytes) {
  std::array<int64_t, 256> counts{};
  for (const uint8_t byte : bytes) ++counts[byte];
  return counts;
}

// Short ones, odd ends, one byte either side of where the table of pairs begins to pay (256 KiB),
// and narrow, wide and constant data.
TEST(CountBytes, EqualsOneByteAtATime) {
  for (const size_t n : {0, 1, 7, 8, 9, 1000, 262143, 262144, 262145, 1000003}) {
    for (const uint32_t width : {1U, 40U, 256U}) {
      SCOPED_TRACE(::testing::Message() << n << " bytes of " << width << " values");
      std::mt19937 random(static_cast<uint32_t>(n) + width);
      std::vector<uint8_t> bytes(n);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(255 - random() % width);
      std::array<int64_t, 256> counts{};
      count_bytes(bytes.data(), static_cast<int64_t>(n), counts);
      EXPECT_EQ(counts, counted_slowly(bytes));
    }
  }
}

TEST(CountBytes, Adds) {
  const std::vector<uint8_t> bytes = {3, 3, 5, 3};
  std::array<int64_t, 256> counts{};
  counts[3] = int64_t{1} << 40;
  count_bytes(bytes.data(), 4, counts);
  EXPECT_EQ(counts[3], (int64_t{1} << 40) + 3);
  EXPECT_EQ(counts[5], 1);
}

}  // namespace
}  // namespace sextant
