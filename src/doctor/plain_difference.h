// Tensors that belong to no linear (norms, biases, routers' corrections, fused experts that are
// stored plain) against those of the same name in a reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/directory.h"

namespace sextant {

struct PlainDifference {
  enum class Kind : uint8_t { kValues, kShape, kNotComparable };
  std::string name;
  Kind kind = Kind::kValues;
  std::string form;  // "BF16 [64]"
  std::string reference_form;
  int64_t n = 0;
  // Values that are not equal; where the two have different dtypes, by more than their rounding.
  int64_t n_different = 0;
  int64_t first_different = -1;
  double relative_l2 = 0;  // infinite where one side alone is no finite number
};

struct PlainComparison {
  std::vector<PlainDifference> tensors;  // by name
  std::vector<std::string> only_here;
  std::vector<std::string> only_reference;
};

PlainComparison compare_plain(const Checkpoint& checkpoint, const Checkpoint& reference,
                              ThreadPool& pool);

}  // namespace sextant
