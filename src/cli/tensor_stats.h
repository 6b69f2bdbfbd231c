// Statistics and first values of one tensor or one quantized linear, for `sextant inspect
// --tensor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"

namespace sextant {

struct TensorStats {
  std::string name;
  std::string kind;  // dtype, or scheme of a linear whose values are dequantized
  std::vector<int64_t> shape;
  int64_t n = 0;
  int64_t n_zero = 0;
  int64_t n_nan = 0;
  int64_t n_inf = 0;
  double min = 0;  // of the finite values
  double max = 0;
  double mean = 0;
  double rms = 0;
  std::vector<float> first;  // row by row
};

// name: a tensor of the file as it is stored, or the module of a linear: its weights as numbers.
// kUsage with close names where there is neither, kUnsupported for values without numbers of their
// own (packed codes), which names the module to ask for.
Result<TensorStats> tensor_stats(const Checkpoint& checkpoint, const std::string& name,
                                 int64_t n_first);

}  // namespace sextant
