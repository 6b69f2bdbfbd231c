// Buffers of a step, sized once for so many rows; a step allocates nothing. Owns memory only: what
// a buffer holds when is the forward pass's knowledge. One StepBuffers serves one step at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arena.h"
#include "base/view.h"
#include "kernels/ops.h"
#include "model/blocks/rope.h"
#include "model/config.h"
#include "model/model.h"

namespace sextant {

class StepBuffers {
 public:
  // quantizes_inputs: some linear does, and so needs room for what its input becomes.
  StepBuffers(const ModelConfig& config, int64_t max_tokens, int64_t max_logit_rows,
              bool quantizes_inputs);

  // Lays out a step: ids and attention spans in the order of seqs, rotary angles of every row.
  // Everything the forward pass then reads is cut to this step's rows. Kernel scratch that a thread
  // has had to make in earlier steps is made for every thread of the pool.
  void begin(std::span<const StepSeq> seqs, const RopeFrequencies& rope, ThreadPool& pool);

  int64_t n_rows() const { return n_rows_; }
  int64_t n_logit_rows() const { return n_logit_rows_; }
  std::span<const int32_t> ids() const { return {ids_, static_cast<size_t>(n_rows_)}; }
  std::span<AttentionSeq> spans() { return spans_; }

  Mat<float> hidden() const { return cut(hidden_); }
  Mat<float> normed() const { return cut(normed_); }  // input of attention, then of the MLP
  Mat<float> out() const { return cut(out_); }        // what a block adds to hidden
  Mat<float> q() const { return cut(q_); }
  Mat<float> k() const { return cut(k_); }
  Mat<float> v() const { return cut(v_); }
  Mat<float> attn() const { return cut(attn_); }
  // As wide as the MLP that runs, at most the widest of the model.
  Mat<float> gate(int64_t n_rows, int64_t d_ff) const { return {gate_.data, n_rows, d_ff}; }
  Mat<float> up(int64_t n_rows, int64_t d_ff) const { return {up_.data, n_rows, d_ff}; }
  Mat<float> cos() const { return cut(cos_); }
  Mat<float> sin() const { return cut(sin_); }
  // Of a layer with experts.
  Mat<float> router_logits() const { return cut(router_logits_); }
  Mat<float> router_weights() const { return cut(router_weights_); }
  Mat<int32_t> router_ids() const { return cut(router_ids_); }
  // Of the expert that runs: its rows, what each counts, their inputs and outputs.
  int32_t* expert_rows() const { return expert_rows_; }
  float* expert_weights() const { return expert_weights_; }
  Mat<float> expert_x() const { return cut(expert_x_); }
  Mat<float> expert_y() const { return cut(expert_y_); }

  // The input of the linears that run now as codes times block scales, and each row's factor.
  Mat<float> quantized(int64_t n_rows, int64_t k) const;
  std::span<float> input_multipliers(int64_t n_rows) const;

  Mat<float> last() const { return last_.row_range(0, n_logit_rows_); }  // rows of the head

 private:
  template <class T>
  Mat<T> cut(Mat<T> all) const {
    return all.row_range(0, n_rows_);
  }

  int64_t max_tokens_;
  int64_t max_logit_rows_;
  int64_t n_rows_ = 0;
  int64_t n_logit_rows_ = 0;
  Arena arena_;
  Mat<float> hidden_, normed_, out_, q_, k_, v_, attn_, gate_, up_, cos_, sin_, last_;
  Mat<float> router_logits_, router_weights_, expert_x_, expert_y_, quantized_;
  Mat<int32_t> router_ids_;
  float* frequencies_ = nullptr;
  float* expert_weights_ = nullptr;
  float* input_multipliers_ = nullptr;
  int32_t* ids_ = nullptr;
  int32_t* expert_rows_ = nullptr;
  std::vector<AttentionSeq> spans_;
  uint64_t settled_ = 0;  // of settle_scratch
};

}  // namespace sextant
