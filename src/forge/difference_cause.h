// Why two models differ at a tap: the parameters that the tap is computed with are read again from
// both checkpoints. Names tensors; what they hold apart, element by element where both are stored
// in one form, by their dequantized values where they are not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "forge/explained_error.h"
#include "model/bad_tap_cause.h"

namespace sextant {

struct DifferenceCause {
  // A cause of bad_tap_cause.h ("weight", "global-scale", ...), "input-scale", "config", "policy",
  // or "unknown".
  std::string kind;
  char side = 'b';                   // where it lies; a difference has no side and is said of B
  std::vector<std::string> tensors;  // of that side, the likeliest first
  std::vector<int64_t> index;        // of the first tensor, where it begins
  std::optional<double> value_a;     // there
  std::optional<double> value_b;
  std::string ratio;    // of B to A, where it is a clean one (quant/ratio_name.h)
  std::string message;  // a sentence without its end
};

// tap: one that stands out, or the first that differs at all. ids: of the whole comparison.
DifferenceCause find_difference_cause(const ComparedModel& a, const ComparedModel& b,
                                      const ComparedTap& tap, std::span<const int32_t> ids,
                                      ThreadPool& pool);

}  // namespace sextant
