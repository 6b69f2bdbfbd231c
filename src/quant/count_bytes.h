// Histogram of bytes, as block scales are: one pass.
#pragma once

#include <array>
#include <cstdint>

namespace sextant {

// Adds how often each byte stands in bytes[0, n).
void count_bytes(const uint8_t* bytes, int64_t n, std::array<int64_t, 256>& counts);

}  // namespace sextant
