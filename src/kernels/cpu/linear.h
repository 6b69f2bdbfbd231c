// Linears over the 32-row layout: the driver that cuts a call into tasks by its plan and calls an
// ISA's kernels. Owns threading, preparation of x, row multipliers and ragged ends; no arithmetic
// of the sums.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace sextant::cpu {

void linear(const Isa& isa, std::span<const PackedLinear* const> ws, Mat<const float> x,
            ActForm act, std::span<const Mat<float>> ys, ThreadPool& pool);

}  // namespace sextant::cpu
