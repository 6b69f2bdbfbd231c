// Which linears of two checkpoints are the same weight (against.h says when).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "doctor/weight_difference.h"

namespace sextant {

struct WeightPair {
  std::string module;
  RowSpan here;
  RowSpan reference;
  int64_t n = 0;
};

struct WeightMatch {
  std::vector<WeightPair> pairs;       // of equal shape
  std::vector<std::string> only_here;  // modules; without those that nobody has to use
  std::vector<std::string> only_reference;
};

// Adds A5 for partners of different shape, which are no pair.
WeightMatch match_weights(const Checkpoint& checkpoint, const Checkpoint& reference,
                          FindingSet& findings);

}  // namespace sextant
