// Implements count_bytes.h: a vector kernel for the most of it, tables for the rest.
#include "quant/count_bytes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/cpu_info.h"
#include "quant/count_codes_isa.h"

namespace sextant {
namespace {

// Below this the kernels' sums cost more to begin and to end than they save.
constexpr int64_t kWorthwhileBytes = 4 << 10;

int64_t count_byte_chunks(const uint8_t* bytes, int64_t n, std::array<int64_t, 256>& counts) {
#ifdef SX_COUNT_CODES_ISA
  if (!cpu_info().avx2) return 0;
  uint64_t raw[256] = {};
  const int64_t taken =
      cpu_info().avx512 ? count_bytes_avx512(bytes, n, raw) : count_bytes_avx2(bytes, n, raw);
  for (size_t byte = 0; byte < 256; ++byte) counts[byte] += static_cast<int64_t>(raw[byte]);
  return taken;
#else
  return 0;
#endif
}

// Four tables, so that equal bytes in a row do not wait for each other.
void count_by_table(const uint8_t* bytes, int64_t n, std::array<int64_t, 256>& counts) {
  uint32_t tables[4][256] = {};
  for (int64_t begin = 0; begin < n;) {
    const int64_t end = std::min(n, begin + (int64_t{1} << 30));
    for (int64_t i = begin; i < end; ++i) ++tables[i % 4][bytes[i]];
    for (size_t byte = 0; byte < 256; ++byte)
      for (auto& table : tables) counts[byte] += std::exchange(table[byte], 0U);
    begin = end;
  }
}

}  // namespace

void count_bytes(const uint8_t* bytes, int64_t n, std::array<int64_t, 256>& counts) {
  SX_CHECK(n >= 0);
  const int64_t taken = n < kWorthwhileBytes ? 0 : count_byte_chunks(bytes, n, counts);
  count_by_table(bytes + taken, n - taken, counts);
}

}  // namespace sextant
