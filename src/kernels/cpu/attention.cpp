// Cuts attention into tasks of some heads of one key head and some rows (plan_attention), and walks
// each task's keys in blocks of 32 at fixed absolute positions, so that neither chunking nor the
// plan shows in the bits. Keys outside a task's rows are never read.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/cpu/rows.h"
#include "kernels/plan.h"
#include "kernels/scratch.h"

namespace sextant::cpu {
namespace {

struct Task {
  int64_t head_begin;
  int64_t n_heads;
  int64_t row_begin;  // within the sequence
  int64_t n_rows;
};

struct Buffers {
  float* q;
  float* keys;
  float* values;
  float* scores;
  float* out;
  float* max;
  float* sum;
  int32_t* begin;
  int32_t* end;
};

Buffers carve(int64_t n_rows, int64_t dim) {
  const int64_t rows = round_up(n_rows, 16);
  const int64_t floats = 2 * rows * dim + 2 * kKeyBlock * dim + rows * kKeyBlock + 4 * rows;
  float* p = scratch<float>(Scratch::kAttention, floats);
  Buffers b{};
  const auto take = [&p](int64_t n) {
    float* taken = p;
    p += n;
    return taken;
  };
  b.q = take(rows * dim);
  b.keys = take(kKeyBlock * dim);
  b.values = take(kKeyBlock * dim);
  b.scores = take(rows * kKeyBlock);
  b.out = take(rows * dim);
  b.max = take(rows);
  b.sum = take(rows);
  b.begin = reinterpret_cast<int32_t*>(take(rows));
  b.end = reinterpret_cast<int32_t*>(take(rows));
  return b;
}

// Positions [from, to) of one head into rows from - block_begin ... of out; the other rows zero.
void load_block(const Isa& isa, const KvView& kv, const void* const* pages, int64_t width,
                int64_t head_at, int64_t head_dim, int64_t dim, int64_t block_begin, int64_t from,
                int64_t to, float* out) {
  if (to - from < kKeyBlock || dim != head_dim) std::fill_n(out, kKeyBlock * dim, 0.0F);
  for (int64_t pos = from; pos < to; ++pos) {
    const void* page = pages[pos / kv.page_tokens];
    const int64_t at = pos % kv.page_tokens * width + head_at;
    float* to_row = out + (pos - block_begin) * dim;
    if (kv.dtype == DType::kBF16)
      isa.widen_bf16(static_cast<const uint16_t*>(page) + at, head_dim, to_row);
    else
      std::memcpy(to_row, static_cast<const float*>(page) + at,
                  static_cast<size_t>(head_dim) * sizeof(float));
  }
}

int64_t first_key(const AttentionParams& params, int64_t pos) {
  return params.window > 0 ? std::max<int64_t>(0, pos - params.window + 1) : 0;
}

void run_task(const Isa& isa, Mat<const float> q, const AttentionSeq& seq,
              const AttentionParams& params, const Task& task, Mat<float> out) {
  const int64_t head_dim = params.head_dim;
  const int64_t dim = round_up(head_dim, 8);
  const int64_t rows = task.n_rows * task.n_heads;  // row i * n_heads + head
  const Buffers b = carve(rows, dim);
  const int64_t q_begin = seq.row_begin + task.row_begin;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = r / task.n_heads;
    const int64_t head = task.head_begin + r % task.n_heads;
    isa.prepare(q.data + (q_begin + i) * q.stride + head * head_dim, head_dim, false, b.q + r * dim,
                dim);
    b.max[r] = -std::numeric_limits<float>::infinity();
    b.sum[r] = 0.0F;
  }
  std::fill_n(b.out, rows * dim, 0.0F);
  const int64_t width = params.n_kv_heads * head_dim;
  const int64_t head_at = task.head_begin / (params.n_heads / params.n_kv_heads) * head_dim;
  const int64_t first_pos = seq.pos_begin + task.row_begin;
  const int64_t last_pos = first_pos + task.n_rows - 1;
  const int64_t first = first_key(params, first_pos);
  for (int64_t block = first / kKeyBlock * kKeyBlock; block <= last_pos; block += kKeyBlock) {
    const int64_t from = std::max(block, first);
    const int64_t to = std::min(block + kKeyBlock, last_pos + 1);
    load_block(isa, seq.kv, seq.kv.k_pages, width, head_at, head_dim, dim, block, from, to, b.keys);
    load_block(isa, seq.kv, seq.kv.v_pages, width, head_at, head_dim, dim, block, from, to,
               b.values);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t pos = first_pos + r / task.n_heads;
      const int64_t begin = first_key(params, pos) - block;
      b.begin[r] = static_cast<int32_t>(std::clamp<int64_t>(begin, 0, kKeyBlock));
      b.end[r] = static_cast<int32_t>(std::clamp<int64_t>(pos + 1 - block, 0, kKeyBlock));
    }
    isa.attend({b.q, b.keys, b.values, rows, dim, b.begin, b.end, params.scale, b.scores, b.max,
                b.sum, b.out});
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t head = task.head_begin + r % task.n_heads;
    float* y = out.data + (q_begin + r / task.n_heads) * out.stride + head * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) y[d] = b.out[r * dim + d] / b.sum[r];
  }
}

}  // namespace

void attention(const Isa& isa, Mat<const float> q, std::span<const AttentionSeq> seqs,
               const AttentionParams& params, Mat<float> out, ThreadPool& pool) {
  SX_CHECK(q.rows == out.rows && q.cols == out.cols && q.cols == params.n_heads * params.head_dim &&
               params.n_kv_heads > 0 && params.n_heads % params.n_kv_heads == 0,
           "q [{}, {}], out [{}, {}], {} heads of {}, {} key heads", q.rows, q.cols, out.rows,
           out.cols, params.n_heads, params.head_dim, params.n_kv_heads);
  int64_t n_tasks = 0;
  for (const AttentionSeq& seq : seqs) {
    SX_CHECK(seq.row_begin >= 0 && seq.row_begin + seq.n_rows <= q.rows && seq.pos_begin >= 0,
             "rows {} + {} of {}", seq.row_begin, seq.n_rows, q.rows);
    n_tasks +=
        plan_attention({seq.n_rows, params.n_heads, params.n_kv_heads}, pool.n_threads()).n_tasks;
  }
  // One fork for the whole batch; long rows first, so that the last task is a short one.
  pool.run(n_tasks, [&](int64_t n, int) {
    int64_t at = n;
    for (const AttentionSeq& seq : seqs) {
      const AttentionPlan plan =
          plan_attention({seq.n_rows, params.n_heads, params.n_kv_heads}, pool.n_threads());
      if (at >= plan.n_tasks) {
        at -= plan.n_tasks;
        continue;
      }
      const int64_t head_tasks = params.n_heads / plan.heads_per_task;
      const int64_t row_tasks = plan.n_tasks / head_tasks;
      const int64_t row = (row_tasks - 1 - at / head_tasks) * plan.rows_per_task;
      run_task(isa, q, seq, params,
               {at % head_tasks * plan.heads_per_task, plan.heads_per_task, row,
                std::min(plan.rows_per_task, seq.n_rows - row)},
               out);
      return;
    }
  });
}

}  // namespace sextant::cpu
