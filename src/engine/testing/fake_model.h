// A model of a few lines for tests of the engine: what comes after a token is scripted, and every
// step checks that the engine feeds each position once, in order, with the ids that it promised
// (keys of a position hold the id that was fed there, so reused prefixes are proved by content).
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "base/check.h"
#include "model/model.h"
#include "model/step_buffers.h"

namespace sextant::testing {

class FakeModel final : public Model {
 public:
  // next(ids of the sequence so far, logits of the last position to fill; all zero before).
  using Next = std::function<void(const std::vector<int32_t>& ids, std::span<float> logits)>;

  explicit FakeModel(int64_t n_vocab, int64_t max_context, Next next) : next_(std::move(next)) {
    config_.n_vocab = n_vocab;
    config_.max_position = max_context;
    config_.max_context = max_context;
    config_.n_layers = config_.d_model = config_.d_ff = config_.n_heads = config_.n_kv_heads = 1;
    config_.head_dim = 2;
    history_.reserve(4096);
  }
  ModelConfig& edit_config() { return config_; }

  const ModelConfig& config() const override { return config_; }
  const Policy& policy() const override { return policy_; }
  const Ops& ops() const override { return *available_ops().back(); }
  const std::vector<Finding>& findings() const override { return findings_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t bytes_per_token() const override { return 0; }
  const Linear* linear(std::string_view) const override { return nullptr; }
  LinearPolicy linear_policy(std::string_view) const override { return {}; }
  KvLayout kv_layout() const override { return {1, 1, 1, DType::kF32, 4}; }
  StepBuffersPtr make_buffers(int64_t max_tokens, int64_t max_logit_rows) const override {
    max_tokens_ = max_tokens;
    max_logit_rows_ = max_logit_rows;
    return StepBuffersPtr(new StepBuffers(config_, 1, 1, false));  // never looked at
  }

  void forward(std::span<const StepSeq> seqs, StepBuffers&, Mat<float> logits, Probe* probe,
               ThreadPool& pool) const override {
    int64_t n_rows = 0;
    int64_t n_tokens = 0;
    int64_t n_decoding = 0;
    for (const StepSeq& seq : seqs) {
      n_tokens += static_cast<int64_t>(seq.ids.size());
      n_decoding += seq.ids.size() == 1 ? 1 : 0;
      SX_CHECK(seq.kv->capacity() >= seq.pos_begin + static_cast<int64_t>(seq.ids.size()),
               "no pages for a position that is fed");
      store(seq, pool);
      read_back(seq);
      if (probe != nullptr) visit(*probe);
      if (seq.n_logits == 0) continue;
      const std::span<float> row = logits.row(n_rows++);
      std::fill(row.begin(), row.end(), 0.0F);
      next_(history_, row);
    }
    SX_CHECK(n_tokens <= max_tokens_ && n_rows <= max_logit_rows_ && n_rows == logits.rows,
             "a step of {} tokens and {} rows", n_tokens, n_rows);
    ++n_steps_;
    n_fed_ += n_tokens;
    largest_batch_ = std::max(largest_batch_, n_decoding);
  }

  int64_t n_fed() const { return n_fed_; }
  int64_t n_steps() const { return n_steps_; }
  int64_t largest_batch() const { return largest_batch_; }

 private:
  // From the pool's threads, as a real model writes its cache.
  static void store(const StepSeq& seq, ThreadPool& pool) {
    pool.run(static_cast<int64_t>(seq.ids.size()), [&](int64_t i, int) {
      *static_cast<float*>(seq.kv->k_at(0, seq.pos_begin + i)) =
          static_cast<float>(seq.ids[static_cast<size_t>(i)]);
    });
  }
  void read_back(const StepSeq& seq) const {
    history_.clear();
    const int64_t end = seq.pos_begin + static_cast<int64_t>(seq.ids.size());
    for (int64_t pos = 0; pos < end; ++pos)
      history_.push_back(static_cast<int32_t>(*static_cast<float*>(seq.kv->k_at(0, pos))));
  }
  // Token 66 is one whose keys are NaN, as of layer 3.
  void visit(Probe& probe) const {
    float good = 1.0F;
    float bad = NAN;
    const bool has_bad = std::find(history_.begin(), history_.end(), 66) != history_.end();
    probe.visit({"embed", -1, "", {}}, Mat<const float>(&good, 1, 1));
    probe.visit({"k", 3, "model.layers.3.self_attn.k_proj", {}},
                Mat<const float>(has_bad ? &bad : &good, 1, 1));
    probe.visit({"logits", -1, "lm_head", {}}, Mat<const float>(has_bad ? &bad : &good, 1, 1));
  }

  Next next_;
  ModelConfig config_;
  Policy policy_;
  std::vector<Finding> findings_;
  mutable std::vector<int32_t> history_;
  mutable int64_t max_tokens_ = 0;
  mutable int64_t max_logit_rows_ = 0;
  mutable int64_t n_fed_ = 0;
  mutable int64_t n_steps_ = 0;
  mutable int64_t largest_batch_ = 0;
};

// F-CHAIN: after token t comes t + 1 (modulo the vocabulary).
inline FakeModel::Next chain(float peak = 10.0F) {
  return [peak](const std::vector<int32_t>& ids, std::span<float> logits) {
    logits[static_cast<size_t>(ids.back() + 1) % logits.size()] = peak;
  };
}

}  // namespace sextant::testing
