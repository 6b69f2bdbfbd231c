// Counts of bytes against one byte at a time.
#include "quant/count_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/cpu_info.h"
#include "quant/count_codes_isa.h"

namespace sextant {
namespace {

std::array<int64_t, 256> counted_slowly(const std::vector<uint8_t>& bytes) {
  std::array<int64_t, 256> counts{};
  for (const uint8_t byte : bytes) ++counts[byte];
  return counts;
}

// Bytes of `width` values up to `top`, with now and then one from anywhere.
std::vector<uint8_t> random_bytes(size_t n, uint32_t top, uint32_t width) {
  std::mt19937 random(static_cast<uint32_t>(n) + width);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(top - random() % width);
  for (size_t i = 0; i < n; i += 50'000) bytes[i] = static_cast<uint8_t>(random());
  return bytes;
}

// Around the chunks (512 and 1024 bytes), the emptying of sums (15 chunks) and the smallest input
// that a kernel is given (4 KiB); narrow, wide and constant.
TEST(CountBytes, EqualsOneByteAtATime) {
  for (const size_t n :
       {0, 1, 7, 9, 1000, 4095, 4096, 4097, 7680, 15359, 15360, 15361, 16384, 1000003})
    for (const uint32_t width : {1U, 40U, 256U}) {
      SCOPED_TRACE(::testing::Message() << n << " bytes of " << width << " values");
      const auto bytes = random_bytes(n, width == 40 ? 0x7E : 0xFF, width);
      std::array<int64_t, 256> counts{};
      count_bytes(bytes.data(), static_cast<int64_t>(n), counts);
      EXPECT_EQ(counts, counted_slowly(bytes));
    }
}

// One value everywhere: each sum reaches its largest value.
TEST(CountBytes, EachByteAlone) {
  for (int byte = 0; byte < 256; ++byte) {
    SCOPED_TRACE(byte);
    const std::vector<uint8_t> bytes(40960, static_cast<uint8_t>(byte));
    std::array<int64_t, 256> counts{};
    count_bytes(bytes.data(), 40960, counts);
    EXPECT_EQ(counts, counted_slowly(bytes));
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

#ifdef SX_COUNT_CODES_ISA
void expect_kernel_equals(int64_t (*kernel)(const uint8_t*, int64_t, uint64_t*)) {
  const auto bytes = random_bytes(123'457, 0x7E, 50);
  uint64_t raw[256] = {};
  const int64_t taken = kernel(bytes.data(), 123'457, raw);
  EXPECT_GT(taken, 122'000);
  const auto slow = counted_slowly({bytes.begin(), bytes.begin() + taken});
  for (size_t byte = 0; byte < 256; ++byte)
    EXPECT_EQ(static_cast<int64_t>(raw[byte]), slow[byte]) << byte;
}
TEST(CountBytes, Avx2Kernel) {
  if (!cpu_info().avx2) GTEST_SKIP() << "this processor has no AVX2";
  expect_kernel_equals(count_bytes_avx2);
}
TEST(CountBytes, Avx512Kernel) {
  if (!cpu_info().avx512) GTEST_SKIP() << "this processor has no AVX-512";
  expect_kernel_equals(count_bytes_avx512);
}
#endif

}  // namespace
}  // namespace sextant
