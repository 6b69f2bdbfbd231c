// From what LlamaModel bound to what runs: all at once, or a stage at a time.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/families/llama.h"

namespace sextant {
namespace {

int64_t resident_bytes(const PackedLinear& packed) {
  return packed.data.size() + packed.row_multiplier.size() + packed.scales.size();
}

void copy_rows(Mat<const float> from, Mat<float> to) {
  for (int64_t r = 0; r < from.rows; ++r)
    std::copy(from.row(r).begin(), from.row(r).end(), to.row(r).begin());
}

}  // namespace

class LlamaModel::EmbeddingStage : public Stage {
 public:
  EmbeddingStage(const LlamaModel& model, Embedding part) : model_(model), part_(std::move(part)) {}
  int64_t weight_bytes() const override { return part_.values.size(); }
  void run(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> hidden, Mat<float>,
           Probe* probe, ThreadPool& pool) const override {
    buffers.begin(seqs, model_.rope_, pool);
    model_.run_embedding({*model_.ops_, pool, Taps(probe), buffers, seqs}, part_);
    copy_rows(buffers.hidden(), hidden);
  }

 private:
  const LlamaModel& model_;
  Embedding part_;
};

class LlamaModel::LayerStage : public Stage {
 public:
  LayerStage(const LlamaModel& model, Layer part, int64_t i)
      : model_(model), part_(std::move(part)), i_(i) {}
  int64_t weight_bytes() const override { return model_.sizes_of(part_).resident; }
  void run(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> hidden, Mat<float>,
           Probe* probe, ThreadPool& pool) const override {
    buffers.begin(seqs, model_.rope_, pool);
    copy_rows(hidden, buffers.hidden());
    model_.run_layer({*model_.ops_, pool, Taps(probe), buffers, seqs}, part_, i_);
    copy_rows(buffers.hidden(), hidden);
  }

 private:
  const LlamaModel& model_;
  Layer part_;
  int64_t i_;
};

class LlamaModel::HeadStage : public Stage {
 public:
  HeadStage(const LlamaModel& model, Head part) : model_(model), part_(std::move(part)) {}
  int64_t weight_bytes() const override { return resident_bytes(part_.linear.packed); }
  void run(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> hidden,
           Mat<float> logits, Probe* probe, ThreadPool& pool) const override {
    buffers.begin(seqs, model_.rope_, pool);
    copy_rows(hidden, buffers.hidden());
    model_.run_head({*model_.ops_, pool, Taps(probe), buffers, seqs}, part_, logits);
  }

 private:
  const LlamaModel& model_;
  Head part_;
};

Result<std::unique_ptr<const Stage>> LlamaModel::load_stage(int64_t stage, ThreadPool& pool) const {
  SX_CHECK(stage >= 0 && stage < n_stages(), "stage {} of {}", stage, n_stages());
  if (stage == 0) return std::make_unique<EmbeddingStage>(*this, build_embedding());
  if (stage == n_stages() - 1) {
    SX_ASSIGN(Head head, build_head(pool));
    return std::make_unique<HeadStage>(*this, std::move(head));
  }
  SX_ASSIGN(Layer layer, build_layer(stage - 1, pool));
  return std::make_unique<LayerStage>(*this, std::move(layer), stage - 1);
}

Status LlamaModel::build_all(ThreadPool& pool) {
  embedding_ = build_embedding();
  for (int64_t i = 0; i < config_.n_layers; ++i) {
    SX_ASSIGN(Layer layer, build_layer(i, pool));
    const Sizes sizes = sizes_of(layer);
    weight_bytes_ += sizes.resident;
    bytes_per_token_ += sizes.per_token;
    layers_.push_back(std::move(layer));
  }
  SX_ASSIGN(head_, build_head(pool));
  weight_bytes_ += embedding_.values.size() + resident_bytes(head_.linear.packed);
  bytes_per_token_ += head_.linear.packed.weight_bytes;
  return {};
}

// Rows are gathered from the mapped file, so that only those that occur are resident; a quantized
// table has no rows to gather and is kept as float32.
LlamaModel::Embedding LlamaModel::build_embedding() const {
  const LinearRecord& record = *bound_.embedding;
  Embedding out;
  if (!is_quantized(record.scheme)) {
    out.table = record.weight.bytes().data();
    out.dtype = record.weight.info->dtype;
    return out;
  }
  out.values = AlignedBuffer(record.n * record.k * int64_t{sizeof(float)});
  dequantize_rows(record, 0, record.n, out.values.as<float>());
  release_pages(record.weight);
  out.table = out.values.data();
  out.dtype = DType::kF32;
  return out;
}

Result<LlamaModel::Layer> LlamaModel::build_layer(int64_t i, ThreadPool& pool) const {
  const BoundLayer& bound = bound_.layers[static_cast<size_t>(i)];
  Layer layer;
  layer.attention_norm = to_floats(bound.attention_norm);
  layer.mlp_norm = to_floats(bound.mlp_norm);

  Attention& a = layer.attention;
  SX_ASSIGN(a.q, packed(bound.qkv[0], pool));
  SX_ASSIGN(a.k, packed(bound.qkv[1], pool));
  SX_ASSIGN(a.v, packed(bound.qkv[2], pool));
  SX_ASSIGN(a.o, packed(bound.o, pool));
  if (config_.qk_norm) {
    a.q_norm = to_floats(bound.q_norm);
    a.k_norm = to_floats(bound.k_norm);
    a.norm_eps = config_.rms_eps;
  }
  a.params.n_heads = config_.n_heads;
  a.params.n_kv_heads = config_.n_kv_heads;
  a.params.head_dim = config_.head_dim;
  a.params.scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  a.params.window = config_.window[static_cast<size_t>(i)];

  if (config_.sparse[static_cast<size_t>(i)]) {
    SX_ASSIGN(layer.feed_forward, build_moe(bound, pool));
  } else {
    SX_ASSIGN(layer.feed_forward, build_mlp(bound.mlps.front(), pool));
  }
  return layer;
}

Result<Mlp> LlamaModel::build_mlp(const BoundMlp& bound, ThreadPool& pool) const {
  Mlp mlp;
  SX_ASSIGN(mlp.gate, packed(bound.gate_up[0], pool));
  SX_ASSIGN(mlp.up, packed(bound.gate_up[1], pool));
  SX_ASSIGN(mlp.down, packed(bound.down, pool));
  return mlp;
}

Result<Moe> LlamaModel::build_moe(const BoundLayer& bound, ThreadPool& pool) const {
  Moe moe;
  moe.normalize = config_.norm_top_k;
  SX_ASSIGN(moe.router, packed(bound.router, pool));
  for (const BoundMlp& expert : bound.mlps) {
    SX_ASSIGN(Mlp mlp, build_mlp(expert, pool));
    moe.experts.push_back(std::move(mlp));
  }
  return moe;
}

Result<LlamaModel::Head> LlamaModel::build_head(ThreadPool& pool) const {
  Head head;
  head.norm = to_floats(bound_.norm);
  SX_ASSIGN(head.linear, packed(bound_.head, pool));
  return head;
}

template <class Self, class F>
void LlamaModel::each_linear(Self& self, F&& f) {
  const auto each_of_mlp = [&f](auto& mlp) {
    f(mlp.gate);
    f(mlp.up);
    f(mlp.down);
  };
  for (auto& layer : self.layers_) {
    auto& a = layer.attention;
    f(a.q);
    f(a.k);
    f(a.v);
    f(a.o);
    if (auto* mlp = std::get_if<Mlp>(&layer.feed_forward)) {
      each_of_mlp(*mlp);
      continue;
    }
    auto& moe = std::get<Moe>(layer.feed_forward);
    f(moe.router);
    for (auto& expert : moe.experts) each_of_mlp(expert);
  }
  f(self.head_.linear);
}

const Linear* LlamaModel::linear(std::string_view module) const {
  const Linear* found = nullptr;
  each_linear(*this, [&](const Linear& linear) {
    if (linear.module == module) found = &linear;
  });
  return found;
}

LinearPolicy LlamaModel::linear_policy(std::string_view module) const {
  const auto found = linear_of_.find(module);
  return found == linear_of_.end() ? LinearPolicy{} : policy_for(*found->second, policy_);
}

void LlamaModel::note_quantized_inputs() {
  quantizes_inputs_ = std::any_of(linears_.begin(), linears_.end(), [&](const BoundLinear& l) {
    return input_quantizer(policy_for(l, policy_), *l.record).quantizes();
  });
}

Status LlamaModel::warm_up(const ModelOptions& options) {
  const bool waits = std::any_of(linears_.begin(), linears_.end(), [&](const BoundLinear& l) {
    return policy_for(l, policy_).unmet == Unmet::kNoWarmup;
  });
  if (!waits) return {};
  if (!policy_.warmup_scales.empty()) return {};  // given, but not for all: P13 names those
  if (!options.warm_up || options.stages_on_demand)
    return fail(Code::kUsage,
                "policy a4:warmup takes scales that were measured on text: give those of sextant "
                "calibrate with --input-scales FILE{}",
                options.stages_on_demand ? "" : ", or measure them now with --warmup");
  SX_ASSIGN(policy_.warmup_scales, options.warm_up(*this));
  each_linear(*this, [&](Linear& linear) {
    const BoundLinear& bound = *linear_of_.at(linear.module);
    take_inputs(linear, policy_for(bound, policy_), *bound.record);
  });
  note_quantized_inputs();
  return {};
}

LlamaModel::Sizes LlamaModel::sizes_of(const Layer& layer) const {
  Sizes sizes;
  const auto add = [&sizes](const Linear& linear) {
    sizes.resident += resident_bytes(linear.packed);
    sizes.per_token += linear.packed.weight_bytes;
  };
  const auto add_mlp = [&add](const Mlp& mlp) {
    for (const Linear* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(*linear);
  };
  const Attention& a = layer.attention;
  for (const Linear* linear : {&a.q, &a.k, &a.v, &a.o}) add(*linear);
  if (const Mlp* mlp = std::get_if<Mlp>(&layer.feed_forward)) {
    add_mlp(*mlp);
    return sizes;
  }
  const Moe& moe = std::get<Moe>(layer.feed_forward);
  add(moe.router);
  // A token reads top_k experts: so many of the mean size, where sizes differ.
  const int64_t without_experts = sizes.per_token;
  for (const Mlp& expert : moe.experts) add_mlp(expert);
  const int64_t all_experts = sizes.per_token - without_experts;
  sizes.per_token = without_experts + all_experts / config_.n_experts * config_.top_k;
  return sizes;
}

}  // namespace sextant
