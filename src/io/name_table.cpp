#include "io/name_table.h"

#include <random>

#include <xxhash.h>

namespace sextant {

uint64_t hash_name(std::string_view name) {
  static const uint64_t seed = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

}  // namespace sextant
