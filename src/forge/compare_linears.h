// The linears of a dump made with quantized activations, each alone on the dump's own input
// (teacher-forced: a rounding that falls the other way would change all that follows).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "forge/compare.h"
#include "forge/dump.h"
#include "model/model.h"

namespace sextant {

// "x.", "y.", "codes." or "scales." and a module.
bool is_of_linear(std::string_view tensor);

// For every x.MODULE [rows, k] of the dump, the input of a linear, what else it has of the module:
//   scales.MODULE  F8_E4M3 [rows, k/16]: equal bytes
//   codes.MODULE   U8 [rows, k/2], low nibble first, or F8_E4M3 [rows, k]: equal, or one code apart
//                  on at most 0.2 % of the elements
//   y.MODULE       F32 [rows, n] without bias: within its bound, for the dump's codes and scales
// A row of the report each. Tensors of modules that the model does not have come back by name; what
// cannot be compared under this policy is added to skipped.
Result<std::vector<std::string>> compare_linears(const Dump& dump, const Model& model,
                                                 ThreadPool& pool, std::vector<DumpRow>& rows,
                                                 std::vector<std::string>& skipped);

}  // namespace sextant
