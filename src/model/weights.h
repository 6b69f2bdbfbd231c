// From a record of the checkpoint to resident weights: the source a packer reads, exact
// dequantization (nvfp4.md section 1.6) for policies that ask for another form, and the packed
// linear with its bias. Source pages are given back to the system as soon as they are packed, so a
// load holds one linear twice at most. Owns no names and no shapes: bind.h checked those.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/record.h"
#include "kernels/ops.h"
#include "model/policy.h"

namespace sextant {

// Rows [row_begin, row_begin + n) of a record, as the forward pass uses them under one name. More
// than one of these share a record where the checkpoint stores q/k/v or gate/up as one tensor.
struct BoundLinear {
  std::string module;  // the name policies match
  const LinearRecord* record = nullptr;
  int64_t row_begin = 0;
  int64_t n = 0;
  int64_t k = 0;
  TensorRef bias;  // empty where there is none; rows of it from bias_begin
  int64_t bias_begin = 0;
  bool is_router = false;  // its policy is for_router's
};

// A linear ready to run.
struct Linear {
  std::string module;
  PackedLinear packed;
  ActForm act = ActForm::kBf16;
  InputQuantizer input;     // plain where `act` says it all; else act is the form of its codes
  std::vector<float> bias;  // empty for none
};

// Its inputs are float32 values, not rounded to BF16 before anything else.
bool takes_f32(const Linear& linear);

// Values of rows [row_begin, row_begin + n_rows), row-major float32 [n_rows, k], bit for bit what
// the format defines: NVFP4 f32(q * f32(S * g)), or f32(q * f32(S / G)) where the file stores a
// divisor.
void dequantize_rows(const LinearRecord& record, int64_t row_begin, int64_t n_rows, float* out);

// How a linear takes its inputs; whatever its weights are packed as.
void take_inputs(Linear& linear, const LinearPolicy& policy, const LinearRecord& record);

LinearPolicy policy_for(const BoundLinear& bound, const Policy& policy);

// The form in which weights stay in memory, and in which the op takes what a policy makes of the
// inputs.
WeightForm resident_form(const LinearRecord& record, Weights weights);
ActForm act_form(Act act);

// kUnsupported where the bound rows cannot be laid out (rows that cut a block of scales).
Result<Linear> make_linear(const BoundLinear& bound, const LinearPolicy& policy, const Ops& ops,
                           ThreadPool& pool);

// A plain tensor (F32, BF16 or F16) as float32: norms and biases.
std::vector<float> to_floats(const TensorRef& tensor);

}  // namespace sextant
