// Implements step_buffers.h.
#include "model/step_buffers.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace sextant {
namespace {

constexpr int64_t kAlign = 64;  // of Arena

int64_t padded(int64_t n_floats) { return round_up(n_floats * int64_t{sizeof(float)}, kAlign); }

// What layers with experts need on top; nothing where no layer has them.
int64_t expert_d_model(const ModelConfig& c) { return c.n_experts > 0 ? c.d_model : 0; }

// The widest feed-forward there is: d_ff counts only where a layer is dense.
int64_t widest_d_ff(const ModelConfig& c) {
  const bool all_sparse = std::find(c.sparse.begin(), c.sparse.end(), false) == c.sparse.end();
  return c.n_experts > 0 && all_sparse ? c.d_ff_expert : std::max(c.d_ff, c.d_ff_expert);
}

// The widest input of a linear.
int64_t widest_input(const ModelConfig& c) {
  return std::max({c.d_model, c.n_heads * c.head_dim, widest_d_ff(c)});
}

int64_t arena_bytes(const ModelConfig& c, int64_t rows, int64_t logit_rows, bool quantizes_inputs) {
  const int64_t q = c.n_heads * c.head_dim;
  const int64_t kv = c.n_kv_heads * c.head_dim;
  int64_t total = kAlign;
  for (const int64_t width : {c.d_model, c.d_model, c.d_model, q, kv, kv, q, widest_d_ff(c),
                              widest_d_ff(c), c.head_dim / 2, c.head_dim / 2, int64_t{1}})
    total += padded(rows * width);
  for (const int64_t width : {c.n_experts, c.top_k, c.top_k, expert_d_model(c), expert_d_model(c),
                              int64_t{1}, int64_t{1}})
    total += padded(rows * width);
  if (quantizes_inputs) total += padded(rows * widest_input(c)) + padded(rows);
  return total + padded(logit_rows * c.d_model) + padded(c.head_dim / 2);
}

}  // namespace

StepBuffers::StepBuffers(const ModelConfig& config, int64_t max_tokens, int64_t max_logit_rows,
                         bool quantizes_inputs)
    : max_tokens_(max_tokens),
      max_logit_rows_(max_logit_rows),
      arena_(arena_bytes(config, max_tokens, max_logit_rows, quantizes_inputs)) {
  const int64_t q = config.n_heads * config.head_dim;
  const int64_t kv = config.n_kv_heads * config.head_dim;
  const int64_t pairs = config.head_dim / 2;
  hidden_ = arena_.take_mat<float>(max_tokens, config.d_model);
  normed_ = arena_.take_mat<float>(max_tokens, config.d_model);
  out_ = arena_.take_mat<float>(max_tokens, config.d_model);
  q_ = arena_.take_mat<float>(max_tokens, q);
  k_ = arena_.take_mat<float>(max_tokens, kv);
  v_ = arena_.take_mat<float>(max_tokens, kv);
  attn_ = arena_.take_mat<float>(max_tokens, q);
  gate_ = arena_.take_mat<float>(max_tokens, widest_d_ff(config));
  up_ = arena_.take_mat<float>(max_tokens, widest_d_ff(config));
  cos_ = arena_.take_mat<float>(max_tokens, pairs);
  sin_ = arena_.take_mat<float>(max_tokens, pairs);
  router_logits_ = arena_.take_mat<float>(max_tokens, config.n_experts);
  router_weights_ = arena_.take_mat<float>(max_tokens, config.top_k);
  router_ids_ = arena_.take_mat<int32_t>(max_tokens, config.top_k);
  expert_x_ = arena_.take_mat<float>(max_tokens, expert_d_model(config));
  expert_y_ = arena_.take_mat<float>(max_tokens, expert_d_model(config));
  expert_rows_ = arena_.take<int32_t>(max_tokens);
  expert_weights_ = arena_.take<float>(max_tokens);
  if (quantizes_inputs) {
    quantized_ = arena_.take_mat<float>(max_tokens, widest_input(config));
    input_multipliers_ = arena_.take<float>(max_tokens);
  }
  last_ = arena_.take_mat<float>(max_logit_rows, config.d_model);
  frequencies_ = arena_.take<float>(pairs);
  ids_ = arena_.take<int32_t>(max_tokens);
  spans_.reserve(static_cast<size_t>(max_tokens));
}

void StepBuffers::begin(std::span<const StepSeq> seqs, const RopeFrequencies& rope,
                        ThreadPool& pool) {
  settled_ = settle_scratch(pool, settled_);
  n_rows_ = 0;
  n_logit_rows_ = 0;
  spans_.clear();
  for (const StepSeq& seq : seqs) {
    const auto n = static_cast<int64_t>(seq.ids.size());
    SX_CHECK(n > 0 && n_rows_ + n <= max_tokens_, "{} more rows after {} of {}", n, n_rows_,
             max_tokens_);
    SX_CHECK(seq.n_logits >= 0 && seq.n_logits <= n, "{} logits of {} rows", seq.n_logits, n);
    SX_CHECK(seq.pos_begin >= 0 && seq.kv != nullptr && seq.kv->capacity() >= seq.pos_begin + n,
             "{} positions from {} without pages", n, seq.pos_begin);
    std::copy(seq.ids.begin(), seq.ids.end(), ids_ + n_rows_);
    spans_.push_back({n_rows_, n, seq.pos_begin, {}});
    rope.fill(seq.pos_begin, n, {frequencies_, static_cast<size_t>(rope.n_pairs())},
              cos_.row_range(n_rows_, n), sin_.row_range(n_rows_, n));
    n_rows_ += n;
    n_logit_rows_ += seq.n_logits;
  }
  SX_CHECK(n_logit_rows_ <= max_logit_rows_, "{} rows of logits, room for {}", n_logit_rows_,
           max_logit_rows_);
}

Mat<float> StepBuffers::quantized(int64_t n_rows, int64_t k) const {
  SX_CHECK(n_rows <= quantized_.rows && k <= quantized_.cols, "[{}, {}], room for [{}, {}]", n_rows,
           k, quantized_.rows, quantized_.cols);
  return {quantized_.data, n_rows, k};
}

std::span<float> StepBuffers::input_multipliers(int64_t n_rows) const {
  SX_CHECK(n_rows <= quantized_.rows, "{} rows, room for {}", n_rows, quantized_.rows);
  return {input_multipliers_, static_cast<size_t>(n_rows)};
}

}  // namespace sextant
