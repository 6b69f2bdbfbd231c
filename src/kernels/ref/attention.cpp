// Scaled dot-product attention, causal, with an optional sliding window: scores, their maximum,
// exp, sum, weighted values; two passes over the keys, all in float64.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/ref/ref.h"
#include "kernels/scratch.h"
#include "quant/bf16.h"

namespace sextant::ref {
namespace {

double kv_at(const void* const* pages, const KvView& kv, int64_t row_width, int64_t pos,
             int64_t dim) {
  const void* page = pages[pos / kv.page_tokens];
  const int64_t at = pos % kv.page_tokens * row_width + dim;
  return kv.dtype == DType::kBF16 ? bf16_to_f32(static_cast<const uint16_t*>(page)[at])
                                  : static_cast<const float*>(page)[at];
}

// One query row of one head. out may be q.
void attend(const float* q, const AttentionSeq& seq, const AttentionParams& p, int64_t head,
            int64_t pos, float* out) {
  const int64_t row_width = p.n_kv_heads * p.head_dim;
  const int64_t kv_dim = head / (p.n_heads / p.n_kv_heads) * p.head_dim;
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, pos - p.window + 1) : 0;
  auto* sums = scratch<double>(Scratch::kAttention, p.head_dim);
  const auto score = [&](int64_t at) {
    double dot = 0.0;
    for (int64_t d = 0; d < p.head_dim; ++d)
      dot += double{q[d]} * kv_at(seq.kv.k_pages, seq.kv, row_width, at, kv_dim + d);
    return dot * double{p.scale};
  };
  double largest = score(first);
  for (int64_t at = first + 1; at <= pos; ++at) largest = std::max(largest, score(at));
  std::fill_n(sums, p.head_dim, 0.0);
  double total = 0.0;
  for (int64_t at = first; at <= pos; ++at) {
    const double weight = std::exp(score(at) - largest);
    total += weight;
    for (int64_t d = 0; d < p.head_dim; ++d)
      sums[d] += weight * kv_at(seq.kv.v_pages, seq.kv, row_width, at, kv_dim + d);
  }
  for (int64_t d = 0; d < p.head_dim; ++d) out[d] = static_cast<float>(sums[d] / total);
}

}  // namespace

void attention(Mat<const float> q, std::span<const AttentionSeq> seqs,
               const AttentionParams& params, Mat<float> out, ThreadPool& pool) {
  SX_CHECK(q.rows == out.rows && q.cols == out.cols && q.cols == params.n_heads * params.head_dim &&
               params.n_kv_heads > 0 && params.n_heads % params.n_kv_heads == 0,
           "q [{}, {}], out [{}, {}], {} heads of {}, {} key heads", q.rows, q.cols, out.rows,
           out.cols, params.n_heads, params.head_dim, params.n_kv_heads);
  for (const AttentionSeq& seq : seqs) {
    SX_CHECK(seq.row_begin >= 0 && seq.row_begin + seq.n_rows <= q.rows && seq.pos_begin >= 0,
             "rows {} + {} of {}", seq.row_begin, seq.n_rows, q.rows);
    pool.run(seq.n_rows * params.n_heads, [&](int64_t task, int) {
      const int64_t i = task / params.n_heads;
      const int64_t head = task % params.n_heads;
      const int64_t row = seq.row_begin + i;
      attend(q.data + row * q.stride + head * params.head_dim, seq, params, head, seq.pos_begin + i,
             out.data + row * out.stride + head * params.head_dim);
    });
  }
}

}  // namespace sextant::ref
