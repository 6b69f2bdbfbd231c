// The random numbers of the sampler: Philox4x64-10 (Salmon, Moraes, Dror, Shaw: Parallel Random
// Numbers: As Easy as 1, 2, 3, SC 2011), a function of (seed, counter) without state. The number of
// token i of a request is uniform(seed, i), whatever else the engine does, so a seed reproduces.
#pragma once

#include <array>
#include <cstdint>

namespace sextant {

using PhiloxBlock = std::array<uint64_t, 4>;

inline PhiloxBlock philox4x64(PhiloxBlock counter, std::array<uint64_t, 2> key) {
  __extension__ using Wide = unsigned __int128;
  for (int round = 0; round < 10; ++round) {
    const Wide low = Wide{0xD2E7470EE14C6C93U} * counter[0];
    const Wide high = Wide{0xCA5A826395121157U} * counter[2];
    counter = {static_cast<uint64_t>(high >> 64) ^ counter[1] ^ key[0], static_cast<uint64_t>(high),
               static_cast<uint64_t>(low >> 64) ^ counter[3] ^ key[1], static_cast<uint64_t>(low)};
    key[0] += 0x9E3779B97F4A7C15U;
    key[1] += 0xBB67AE8584CAA73BU;
  }
  return counter;
}

// In [0, 1): the top 53 bits of the first word of the block with counter (index, 0, 0, 0) and key
// (seed, 0). numpy: Philox(key=[seed, 0], counter=[index - 1 mod 2^256]).random_raw() >> 11, times
// 2^-53.
inline double uniform(uint64_t seed, uint64_t index) {
  return static_cast<double>(philox4x64({index, 0, 0, 0}, {seed, 0})[0] >> 11) * 0x1.0p-53;
}

}  // namespace sextant
