// Implements count_bytes.h.
#include "quant/count_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sextant {

// Eight tables, so that equal bytes in a row do not wait for each other.
void count_bytes(const uint8_t* bytes, int64_t n, std::array<int64_t, 256>& counts) {
  uint32_t tables[8][256] = {};
  while (n > 0) {
    const int64_t part = std::min<int64_t>(n, int64_t{1} << 30);
    int64_t i = 0;
    for (; i + 8 <= part; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, 8);
      for (size_t j = 0; j < 8; ++j) ++tables[j][(word >> (8 * j)) & 0xFF];
    }
    for (; i < part; ++i) ++tables[0][bytes[i]];
    for (size_t byte = 0; byte < 256; ++byte)
      for (auto& table : tables) counts[byte] += std::exchange(table[byte], 0U);
    bytes += part;
    n -= part;
  }
}

}  // namespace sextant
