// The Llama family: Llama 2 and 3, SmolLM2, Mistral, Qwen2, Qwen3, Qwen3-MoE. One decoder; biases,
// norms of q and k, windows, tied embeddings and which layers have experts are flags of its
// ModelConfig, rope is a table of frequencies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "model/bind.h"
#include "model/blocks/attention.h"
#include "model/blocks/mlp.h"
#include "model/blocks/moe.h"
#include "model/blocks/rope.h"
#include "model/linear_plan.h"
#include "model/model.h"

namespace sextant {

class LlamaModel : public Model {
 public:
  static Result<std::shared_ptr<const Model>> load(std::unique_ptr<Checkpoint> checkpoint,
                                                   ModelConfig config, Policy policy,
                                                   const Ops& ops, ThreadPool& pool);
  // Binds and packs nothing: what is wrong, a finding a name.
  static BoundModel bind_only(const Checkpoint& checkpoint, ModelConfig config);

  const ModelConfig& config() const override { return config_; }
  const Policy& policy() const override { return policy_; }
  const Ops& ops() const override { return *ops_; }
  const std::vector<Finding>& findings() const override { return findings_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t bytes_per_token() const override { return bytes_per_token_; }
  KvLayout kv_layout() const override;
  const Linear* linear(std::string_view module) const override;
  StepBuffersPtr make_buffers(int64_t max_tokens, int64_t max_logit_rows) const override;
  void forward(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> logits, Probe* probe,
               ThreadPool& pool) const override;

 private:
  struct Layer {
    std::vector<float> attention_norm, mlp_norm;
    Attention attention;
    std::variant<Mlp, Moe> feed_forward;
  };

  // Where everything is in the checkpoint: what binding found, before anything is packed.
  struct BoundMlp {
    std::vector<BoundLinear> gate_up;
    BoundLinear down;
  };
  struct BoundLayer {
    TensorRef attention_norm, mlp_norm, q_norm, k_norm;
    std::vector<BoundLinear> qkv;
    BoundLinear o;
    BoundLinear router;          // of a sparse layer
    std::vector<BoundMlp> mlps;  // one, or in a sparse layer one an expert
  };
  struct Bound {
    const LinearRecord* embedding = nullptr;
    std::vector<BoundLayer> layers;
    TensorRef norm;
    BoundLinear head;
  };

  LlamaModel(std::unique_ptr<Checkpoint> checkpoint, ModelConfig config, Policy policy,
             const Ops& ops);
  Status check_checkpoint(ThreadPool& pool);
  static Bound bind_all(const ModelConfig& config, Binder& binder);
  static void bind_experts(const ModelConfig& config, const std::string& mlp, Binder& binder,
                           BoundLayer& layer);
  Result<Bound> bind();
  Status build(const Bound& bound, ThreadPool& pool);
  Status build_layer(const BoundLayer& bound, int64_t i, ThreadPool& pool);
  Result<Mlp> build_mlp(const BoundMlp& bound, ThreadPool& pool);
  Result<Moe> build_moe(const BoundLayer& bound, ThreadPool& pool);
  Result<Linear> packed(const BoundLinear& bound, ThreadPool& pool);
  void take_embedding(const LinearRecord& record);
  void gather_last(std::span<const StepSeq> seqs, StepBuffers& at) const;

  std::unique_ptr<Checkpoint> checkpoint_;  // owns the mapping that embeddings are read from
  ModelConfig config_;
  Policy policy_;
  const Ops* ops_;
  RopeFrequencies rope_;
  std::vector<Finding> findings_;
  const std::byte* embedding_ = nullptr;  // [n_vocab, d_model] of embedding_dtype_
  DType embedding_dtype_ = DType::kBF16;
  AlignedBuffer embedding_values_;  // where the stored table is quantized
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  Linear head_;
  bool quantizes_inputs_ = false;  // of any linear
  int64_t weight_bytes_ = 0;
  int64_t bytes_per_token_ = 0;
};

}  // namespace sextant
