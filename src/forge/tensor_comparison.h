// One tensor of floats of a dump against ours, row by row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "forge/compare.h"
#include "forge/dump.h"

namespace sextant {

// [S, T, width] or [rows, width]; rows in any order.
class TensorComparison {
 public:
  // Elements are held to bound; or the whole tensor to a cosine, where roundings are discontinuous
  // and no element has a bound.
  TensorComparison(const Dump& dump, const TensorInfo& info, double bound,
                   std::optional<double> min_cosine = {});

  // row counts over all sequences.
  void add(int64_t row, std::span<const float> ours);
  DumpRow take();

 private:
  std::vector<int64_t> index_of(int64_t row, int64_t column) const;

  const Dump& dump_;
  const TensorInfo& info_;
  DumpRow row_;
  double ours_ = 0;
  double theirs_ = 0;
  double dot_ = 0;
};

}  // namespace sextant
