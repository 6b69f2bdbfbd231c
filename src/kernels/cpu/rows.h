// Attention and the row-wise operations over an ISA's kernels: checks, tasks, scratch and pages. No
// arithmetic but a last division.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace sextant::cpu {

void attention(const Isa& isa, Mat<const float> q, std::span<const AttentionSeq> seqs,
               const AttentionParams& params, Mat<float> out, ThreadPool& pool);
void rms_norm(const Isa& isa, Mat<const float> x, std::span<const float> weight, float eps,
              Mat<float> y, ThreadPool& pool);
void rope(const Isa& isa, Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
          Mat<const float> sin, ThreadPool& pool);
void silu_mul(const Isa& isa, Mat<const float> gate, Mat<const float> up, Mat<float> out,
              ThreadPool& pool);
void add(const Isa& isa, Mat<float> x, Mat<const float> y, ThreadPool& pool);
void add_bias(const Isa& isa, Mat<float> x, std::span<const float> bias, ThreadPool& pool);
void store_kv(const Isa& isa, std::span<const float> src, DType dtype, void* dst);

}  // namespace sextant::cpu
