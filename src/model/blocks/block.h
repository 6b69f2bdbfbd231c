// What every block of a layer is given: the ops, the threads, the taps, the rows of this step.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/probe.h"
#include "model/step_buffers.h"
#include "model/weights.h"

namespace sextant {

struct BlockContext {
  const Ops& ops;
  ThreadPool& pool;
  Taps tap;
  StepBuffers& at;
  std::span<const StepSeq> seqs;
};

// y = x w^T + bias for linears that share their input: one call where they take it in the same
// form. Output taps are named; rows as in Tap.
struct LinearCall {
  const Linear& linear;
  Mat<float> y;
  const char* tap;
};
void run_linears(const BlockContext& context, int64_t layer, Mat<const float> x,
                 std::span<const LinearCall> calls, std::span<const int32_t> rows = {});

}  // namespace sextant
