// What a checkpoint holds, added up: linears, weights and bytes by scheme. From headers alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/directory.h"

namespace sextant {

struct SchemeSum {
  int64_t n_linears = 0;
  int64_t n_weights = 0;
  int64_t n_bytes = 0;  // with their scales, as the file has them
};

struct CheckpointSummary {
  int64_t n_bytes = 0;  // of all tensors
  SchemeSum linears;    // of all schemes
  std::map<std::string, SchemeSum> schemes;
  double quantized_share = 0;  // of the weights
  double bits_per_weight() const;
};
CheckpointSummary summarize(const Checkpoint& checkpoint);

}  // namespace sextant
