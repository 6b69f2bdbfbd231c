// Histogram of packed E2M1 codes (two a byte, low nibble first) with the blocks of 16 that are all
// zero and those that reach the largest magnitude: one pass at about the speed of memory. What the
// numbers mean is for whoever asked.
#pragma once

#include <array>
#include <cstdint>

namespace sextant {

struct CodeCounts {
  std::array<int64_t, 16> low{};   // low nibbles, by code
  std::array<int64_t, 16> high{};  // high nibbles
  int64_t n_zero_blocks = 0;       // every code is +0 or -0
  int64_t n_full_blocks = 0;       // some code is +6 or -6
};

// Adds what n_bytes >= 0 bytes hold. Blocks are 8 bytes, counted from `bytes` on; the last may be
// shorter.
void count_codes(const uint8_t* bytes, int64_t n_bytes, CodeCounts& counts);

}  // namespace sextant
