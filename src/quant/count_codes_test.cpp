// The vector kernels against one code at a time.
#include "quant/count_codes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/cpu_info.h"
#include "quant/count_codes_isa.h"

namespace sextant {
namespace {

// Uniform bytes would hold no zero block: about one block in eight is made one, with both zeros.
std::vector<uint8_t> random_codes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; i += 8) {
    const uint32_t kind = random() % 8;
    for (size_t j = i; j < std::min(n, i + 8); ++j) {
      const auto byte = static_cast<uint8_t>(random());
      bytes[j] = kind == 0   ? static_cast<uint8_t>(byte & 0x88)
                 : kind <= 3 ? static_cast<uint8_t>(byte & 0xDD)  // magnitudes 0, 1, 4, 5 only
                             : byte;
    }
  }
  return bytes;
}

CodeCounts counted_slowly(const std::vector<uint8_t>& bytes) {
  CodeCounts counts;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    bool zero = true;
    bool full = false;
    for (size_t j = i; j < std::min(bytes.size(), i + 8); ++j) {
      ++counts.low[bytes[j] % 16];
      ++counts.high[bytes[j] / 16];
      for (const int code : {bytes[j] % 16, bytes[j] / 16}) {
        zero = zero && (code == 0 || code == 8);
        full = full || code == 7 || code == 15;
      }
    }
    counts.n_zero_blocks += zero;
    counts.n_full_blocks += full;
  }
  return counts;
}

void expect_equal(const CodeCounts& a, const CodeCounts& b) {
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_EQ(a.n_zero_blocks, b.n_zero_blocks);
  EXPECT_EQ(a.n_full_blocks, b.n_full_blocks);
}

// Around the chunks (512 and 1024 bytes), the emptying of sums (15 chunks) and the smallest input
// that a kernel is given (16 KiB).
TEST(CountCodes, EqualsOneCodeAtATime) {
  for (const size_t n :
       {0, 1, 7, 8, 9, 511, 512, 1024, 16383, 16384, 16385, 16896, 17408, 23040, 100003, 1 << 20}) {
    SCOPED_TRACE(n);
    const auto bytes = random_codes(n, static_cast<uint32_t>(n));
    CodeCounts counts;
    count_codes(bytes.data(), static_cast<int64_t>(n), counts);
    expect_equal(counts, counted_slowly(bytes));
  }
}

// One code everywhere: each sum reaches its largest value.
TEST(CountCodes, EachCodeAlone) {
  for (int code = 0; code < 16; ++code) {
    SCOPED_TRACE(code);
    const std::vector<uint8_t> bytes(40960, static_cast<uint8_t>(17 * code));
    CodeCounts counts;
    count_codes(bytes.data(), 40960, counts);
    for (int other = 0; other < 16; ++other) {
      EXPECT_EQ(counts.low[static_cast<size_t>(other)], other == code ? 40960 : 0);
      EXPECT_EQ(counts.high[static_cast<size_t>(other)], other == code ? 40960 : 0);
    }
    EXPECT_EQ(counts.n_zero_blocks, code % 8 == 0 ? 5120 : 0);
    EXPECT_EQ(counts.n_full_blocks, code % 8 == 7 ? 5120 : 0);
  }
}

// Adds to what is there.
TEST(CountCodes, Adds) {
  const auto bytes = random_codes(20000, 5);
  CodeCounts halves;
  count_codes(bytes.data(), 16800, halves);
  count_codes(bytes.data() + 16800, 3200, halves);
  expect_equal(halves, counted_slowly(bytes));
}

#ifdef SX_COUNT_CODES_ISA
void expect_kernel_equals(int64_t (*kernel)(const uint8_t*, int64_t, CodeCountsRaw&)) {
  const auto bytes = random_codes(50000, 11);
  CodeCountsRaw raw;
  const int64_t taken = kernel(bytes.data(), 50000, raw);
  EXPECT_GT(taken, 48000);
  const CodeCounts slow = counted_slowly({bytes.begin(), bytes.begin() + taken});
  for (size_t code = 0; code < 16; ++code) {
    EXPECT_EQ(static_cast<int64_t>(raw.nibbles[code / 8][code % 8]), slow.low[code]);
    EXPECT_EQ(static_cast<int64_t>(raw.nibbles[2 + code / 8][code % 8]), slow.high[code]);
  }
  EXPECT_EQ(raw.n_zero_blocks, slow.n_zero_blocks);
  EXPECT_EQ(raw.n_full_blocks, slow.n_full_blocks);
}
TEST(CountCodes, Avx2Kernel) {
  if (!cpu_info().avx2) GTEST_SKIP() << "this processor has no AVX2";
  expect_kernel_equals(count_codes_avx2);
}
TEST(CountCodes, Avx512Kernel) {
  if (!cpu_info().avx512) GTEST_SKIP() << "this processor has no AVX-512";
  expect_kernel_equals(count_codes_avx512);
}
#endif

}  // namespace
}  // namespace sextant
