// The Llama family: Llama 2 and 3, SmolLM2, Mistral, Qwen2, Qwen3, Qwen3-MoE. One decoder; biases,
// norms of q and k, windows, tied embeddings and which layers have experts are flags of its
// ModelConfig, rope is a table of frequencies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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
                                                   const Ops& ops, const ModelOptions& options,
                                                   ThreadPool& pool);
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
  LinearPolicy linear_policy(std::string_view module) const override;
  StepBuffersPtr make_buffers(int64_t max_tokens, int64_t max_logit_rows) const override;
  void forward(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> logits, Probe* probe,
               ThreadPool& pool) const override;
  Result<std::unique_ptr<const Stage>> load_stage(int64_t stage, ThreadPool& pool) const override;

 private:
  struct Embedding {
    const std::byte* table = nullptr;  // [n_vocab, d_model]
    DType dtype = DType::kBF16;
    AlignedBuffer values;  // where the stored table is quantized
  };
  struct Layer {
    std::vector<float> attention_norm, mlp_norm;
    Attention attention;
    std::variant<Mlp, Moe> feed_forward;
  };
  struct Head {
    std::vector<float> norm;
    Linear linear;
  };
  class EmbeddingStage;
  class LayerStage;
  class HeadStage;

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
  Status bind();

  // The forward pass; the residual stream is context.at.hidden().
  void run_embedding(const BlockContext& context, const Embedding& embedding) const;
  void run_layer(const BlockContext& context, const Layer& layer, int64_t i) const;
  void run_head(const BlockContext& context, const Head& head, Mat<float> logits) const;

  // From what is bound to what runs.
  Status build_all(ThreadPool& pool);
  Embedding build_embedding() const;
  Result<Layer> build_layer(int64_t i, ThreadPool& pool) const;
  Result<Mlp> build_mlp(const BoundMlp& bound, ThreadPool& pool) const;
  Result<Moe> build_moe(const BoundLayer& bound, ThreadPool& pool) const;
  Result<Head> build_head(ThreadPool& pool) const;
  Result<Linear> packed(const BoundLinear& bound, ThreadPool& pool) const {
    return make_linear(bound, policy_for(bound, policy_), *ops_, pool);
  }
  template <class Self, class F>
  static void each_linear(Self& self, F&& f);  // of those that are built
  // a4:warmup: measures by running what was built, and takes the scales.
  Status warm_up(const ModelOptions& options);
  void note_quantized_inputs();

  struct Sizes {
    int64_t resident = 0;
    int64_t per_token = 0;  // what a decode step of one token reads
  };
  Sizes sizes_of(const Layer& layer) const;

  std::unique_ptr<Checkpoint> checkpoint_;  // owns the mapping that embeddings are read from
  ModelConfig config_;
  Policy policy_;
  const Ops* ops_;
  RopeFrequencies rope_;
  std::vector<Finding> findings_;
  Bound bound_;
  Embedding embedding_;  // this and what follows: nothing where stages are loaded on demand
  std::vector<Layer> layers_;
  Head head_;
  std::vector<BoundLinear> linears_;  // all of them, in the order of binding
  std::map<std::string_view, const BoundLinear*> linear_of_;  // by module
  bool quantizes_inputs_ = false;                             // of any linear
  int64_t weight_bytes_ = 0;
  int64_t bytes_per_token_ = 0;
};

}  // namespace sextant
