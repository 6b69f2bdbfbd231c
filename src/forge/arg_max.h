// The id that greedy decoding takes from a row of logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace sextant {

// The first of the largest values; logits are not empty and hold no NaN (step() has checked that).
inline int32_t arg_max(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace sextant
