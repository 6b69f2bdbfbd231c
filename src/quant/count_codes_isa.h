// What the per-ISA files give to count_codes and count_bytes.
#pragma once

#include <cstdint>

namespace sextant {

// What a vector kernel counts of the first bytes, as many as are whole chunks of its own.
struct CodeCountsRaw {
  uint64_t nibbles[4][8];  // low nibbles 0-7 and 8-15, high nibbles 0-7 and 8-15
  int64_t n_zero_blocks;
  int64_t n_full_blocks;
};
// Both return the bytes they took.
int64_t count_codes_avx2(const uint8_t* bytes, int64_t n_bytes, CodeCountsRaw& raw);
int64_t count_codes_avx512(const uint8_t* bytes, int64_t n_bytes, CodeCountsRaw& raw);

// Sets the counts of the bytes that are there, and returns how many it took.
int64_t count_bytes_avx2(const uint8_t* bytes, int64_t n_bytes, uint64_t counts[256]);
int64_t count_bytes_avx512(const uint8_t* bytes, int64_t n_bytes, uint64_t counts[256]);

}  // namespace sextant
