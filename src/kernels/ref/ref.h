// The reference of every operation: slow and obvious, in float64 with one rounding to float32 at
// the end. It is what fast tables are compared with and what they start from. Plain loops in the
// order of the formula; nothing here is ever tuned.
#pragma once

#include "kernels/ops.h"

namespace sextant::ref {

PackedLinear pack(const WeightSource& source, ThreadPool& pool);
void linear(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
            std::span<const Mat<float>> ys, ThreadPool& pool);
std::string_view linear_path(WeightForm form, ActForm act);
void rms_norm(Mat<const float> x, std::span<const float> weight, float eps, Mat<float> y,
              ThreadPool& pool);
void rope(Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
          Mat<const float> sin, ThreadPool& pool);
void attention(Mat<const float> q, std::span<const AttentionSeq> seqs,
               const AttentionParams& params, Mat<float> out, ThreadPool& pool);
void silu_mul(Mat<const float> gate, Mat<const float> up, Mat<float> out, ThreadPool& pool);
void add(Mat<float> x, Mat<const float> y, ThreadPool& pool);
void add_bias(Mat<float> x, std::span<const float> bias, ThreadPool& pool);
void embed(const std::byte* table, DType dtype, int64_t d, std::span<const int32_t> ids,
           Mat<float> out);
void store_kv(std::span<const float> src, DType dtype, void* dst);

}  // namespace sextant::ref
