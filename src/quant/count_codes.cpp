// Implements count_codes.h: a vector kernel for the most of it, one code at a time for the rest.
#include "quant/count_codes.h"

#include <algorithm>

#include "base/check.h"
#include "base/cpu_info.h"
#include "quant/count_codes_isa.h"

namespace sextant {
namespace {

constexpr int64_t kBlockBytes = 8;

void count_blocks(const uint8_t* bytes, int64_t n_bytes, CodeCounts& counts) {
  for (int64_t begin = 0; begin < n_bytes; begin += kBlockBytes) {
    const int64_t end = std::min(n_bytes, begin + kBlockBytes);
    int any = 0;
    bool full = false;
    for (int64_t i = begin; i < end; ++i) {
      const unsigned low = bytes[i] & 15U;
      const unsigned high = bytes[i] >> 4U;
      ++counts.low[low];
      ++counts.high[high];
      any |= bytes[i] & 0x77;
      full = full || (low & 7U) == 7 || (high & 7U) == 7;
    }
    counts.n_zero_blocks += any == 0 ? 1 : 0;
    counts.n_full_blocks += full ? 1 : 0;
  }
}

int64_t count_chunks(const uint8_t* bytes, int64_t n_bytes, CodeCounts& counts) {
#ifdef SX_COUNT_CODES_ISA
  if (!cpu_info().avx2) return 0;
  CodeCountsRaw raw;
  const int64_t taken = cpu_info().avx512 ? count_codes_avx512(bytes, n_bytes, raw)
                                          : count_codes_avx2(bytes, n_bytes, raw);
  for (size_t code = 0; code < 16; ++code) {
    counts.low[code] += static_cast<int64_t>(raw.nibbles[code / 8][code % 8]);
    counts.high[code] += static_cast<int64_t>(raw.nibbles[2 + code / 8][code % 8]);
  }
  counts.n_zero_blocks += raw.n_zero_blocks;
  counts.n_full_blocks += raw.n_full_blocks;
  return taken;
#else
  return 0;
#endif
}

// Below this the kernels' sums cost more to begin and to end than they save.
constexpr int64_t kWorthwhile = 2 << 10;

}  // namespace

void count_codes(const uint8_t* bytes, int64_t n_bytes, CodeCounts& counts) {
  SX_CHECK(n_bytes >= 0);
  const int64_t taken = n_bytes < kWorthwhile ? 0 : count_chunks(bytes, n_bytes, counts);
  count_blocks(bytes + taken, n_bytes - taken, counts);
}

}  // namespace sextant
