// Llama (arXiv:2302.13971, 2407.21783) and what was made after it: a residual stream of d_model,
// per layer attention and a gated MLP or experts, each on an RMS-normed copy (pre-norm), a final
// norm and the head. forward() reads like that; binding and packing stand below it.
#include "model/families/llama.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoint/scan.h"

namespace sextant {

void LlamaModel::forward(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> logits,
                         Probe* probe, ThreadPool& pool) const {
  const Ops& ops = *ops_;
  const BlockContext context{ops, pool, Taps(probe), buffers, seqs};
  buffers.begin(seqs, rope_, pool);
  const Mat<float> h = buffers.hidden();
  const Mat<float> x = buffers.normed();

  ops.embed(embedding_, embedding_dtype_, config_.d_model, buffers.ids(), h);
  context.tap("embed", -1, h);
  for (int64_t i = 0; i < config_.n_layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    ops.rms_norm(h, layer.attention_norm, config_.rms_eps, x, pool);
    context.tap("attn_in", i, x);
    layer.attention.run(context, i);
    ops.add(h, buffers.out(), pool);

    ops.rms_norm(h, layer.mlp_norm, config_.rms_eps, x, pool);
    context.tap("mlp_in", i, x);
    std::visit([&](const auto& block) { block.run(context, i, x, buffers.out()); },
               layer.feed_forward);
    ops.add(h, buffers.out(), pool);
    context.tap("hidden", i, h);
  }

  if (buffers.n_logit_rows() == 0) return;
  gather_last(seqs, buffers);
  const Mat<float> last = buffers.last();
  ops.rms_norm(last, norm_, config_.rms_eps, last, pool);
  context.tap("norm", -1, last);
  const std::array<LinearCall, 1> head = {{{head_, logits, "logits"}}};
  run_linears(context, -1, last, head);
}

// The rows whose logits are wanted, the last n of each sequence.
void LlamaModel::gather_last(std::span<const StepSeq> seqs, StepBuffers& at) const {
  int64_t out = 0;
  int64_t row_end = 0;
  for (const StepSeq& seq : seqs) {
    row_end += static_cast<int64_t>(seq.ids.size());
    for (int64_t r = row_end - seq.n_logits; r < row_end; ++r, ++out) {
      const std::span<const float> from = at.hidden().row(r);
      std::copy(from.begin(), from.end(), at.last().row(out).begin());
    }
  }
}

KvLayout LlamaModel::kv_layout() const {
  const bool f32 = std::all_of(layers_.begin(), layers_.end(), [](const Layer& layer) {
    return takes_f32(layer.attention.k) && takes_f32(layer.attention.v);
  });
  KvLayout layout;
  layout.n_layers = config_.n_layers;
  layout.n_kv_heads = config_.n_kv_heads;
  layout.head_dim = config_.head_dim;
  layout.dtype = f32 ? DType::kF32 : DType::kBF16;
  return layout;
}

const Linear* LlamaModel::linear(std::string_view module) const {
  std::vector<const Linear*> all = {&head_};
  const auto add_mlp = [&](const Mlp& mlp) {
    all.insert(all.end(), {&mlp.gate, &mlp.up, &mlp.down});
  };
  for (const Layer& layer : layers_) {
    const Attention& a = layer.attention;
    all.insert(all.end(), {&a.q, &a.k, &a.v, &a.o});
    if (const Moe* moe = std::get_if<Moe>(&layer.feed_forward)) {
      all.push_back(&moe->router);
      for (const Mlp& expert : moe->experts) add_mlp(expert);
    } else {
      add_mlp(std::get<Mlp>(layer.feed_forward));
    }
  }
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Linear* linear) { return linear->module == module; });
  return found == all.end() ? nullptr : *found;
}

StepBuffersPtr LlamaModel::make_buffers(int64_t max_tokens, int64_t max_logit_rows) const {
  return StepBuffersPtr(new StepBuffers(config_, max_tokens, max_logit_rows, quantizes_inputs_));
}

LlamaModel::LlamaModel(std::unique_ptr<Checkpoint> checkpoint, ModelConfig config, Policy policy,
                       const Ops& ops)
    : checkpoint_(std::move(checkpoint)),
      config_(std::move(config)),
      policy_(std::move(policy)),
      ops_(&ops),
      rope_(config_.rope, config_.head_dim, config_.max_position) {}

Result<std::shared_ptr<const Model>> LlamaModel::load(std::unique_ptr<Checkpoint> checkpoint,
                                                      ModelConfig config, Policy policy,
                                                      const Ops& ops, ThreadPool& pool) {
  auto model = std::shared_ptr<LlamaModel>(
      new LlamaModel(std::move(checkpoint), std::move(config), std::move(policy), ops));
  SX_TRY(model->check_checkpoint(pool));
  SX_ASSIGN(const Bound bound, model->bind());
  SX_TRY(model->build(bound, pool));
  return model;
}

// What the checkpoint itself has wrong with it. Comes before binding: a linear that lacks a scale
// has no record, and "missing scale" says more than "missing weight". What is wrong with activation
// scales alone is a warning where no policy uses them (cli.md section 4).
Status LlamaModel::check_checkpoint(ThreadPool& pool) {
  findings_ = checkpoint_->findings();
  for (Finding& finding : scan_scales(*checkpoint_, pool)) findings_.push_back(std::move(finding));
  for (const auto& [module, record] : checkpoint_->linears()) release_pages(record.scales);
  SX_TRY(refuse_errors(findings_, policy_.uses_input_scales()));
  for (Finding& finding : findings_)
    if (finding.severity == Severity::kError) finding.severity = Severity::kWarning;
  return {};
}

BoundModel LlamaModel::bind_only(const Checkpoint& checkpoint, ModelConfig config) {
  Binder binder(checkpoint);
  bind_all(config, binder);
  return {std::move(config), binder.linears(), binder.problems()};
}

Result<LlamaModel::Bound> LlamaModel::bind() {
  Binder binder(*checkpoint_);
  Bound bound = bind_all(config_, binder);
  SX_TRY(binder.finish(findings_));
  SX_TRY(check_patterns(policy_, binder.modules()));
  add_unmet_policies(plan_linears(binder.linears(), policy_), findings_);
  return bound;
}

LlamaModel::Bound LlamaModel::bind_all(const ModelConfig& c, Binder& binder) {
  const int64_t q = c.n_heads * c.head_dim;
  const int64_t kv = c.n_kv_heads * c.head_dim;
  const std::array<Binder::Part, 3> qkv = {{{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}};
  const std::array<Binder::Part, 2> gate_up = {{{"gate_proj", c.d_ff}, {"up_proj", c.d_ff}}};
  Bound bound;
  bound.embedding = binder.table("model.embed_tokens", c.n_vocab, c.d_model);
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    BoundLayer& b = bound.layers.emplace_back();
    b.attention_norm = binder.vector(layer + "input_layernorm.weight", c.d_model);
    b.qkv = binder.linears(attention, qkv, "qkv_proj", c.d_model, c.qkv_bias);
    if (c.qk_norm) {
      b.q_norm = binder.vector(attention + "q_norm.weight", c.head_dim);
      b.k_norm = binder.vector(attention + "k_norm.weight", c.head_dim);
    }
    b.o = binder.linear(attention + "o_proj", c.d_model, q, c.o_bias);
    b.mlp_norm = binder.vector(layer + "post_attention_layernorm.weight", c.d_model);
    if (c.sparse[static_cast<size_t>(i)]) {
      bind_experts(c, mlp, binder, b);
      continue;
    }
    b.mlps.push_back({binder.linears(mlp, gate_up, "gate_up_proj", c.d_model, c.mlp_bias),
                      binder.linear(mlp + "down_proj", c.d_model, c.d_ff, c.mlp_bias)});
  }
  bound.norm = binder.vector("model.norm.weight", c.d_model);
  bound.head = c.tied_embeddings ? binder.tied_head("lm_head", bound.embedding)
                                 : binder.linear("lm_head", c.n_vocab, c.d_model, false);
  return bound;
}

// Some files say w1, w3 and w2 for gate, up and down (nvfp4.md section 2.3).
void LlamaModel::bind_experts(const ModelConfig& c, const std::string& mlp, Binder& binder,
                              BoundLayer& layer) {
  layer.router = binder.router(mlp + "gate", c.n_experts, c.d_model);
  bool short_names = false;
  for (int64_t e = 0; e < c.n_experts; ++e)
    for (const char* name : {"w1", "w2", "w3"})
      short_names = short_names || binder.has_linear(fmt::format("{}experts.{}.{}", mlp, e, name));
  const std::array<Binder::Part, 2> gate_up = {{{short_names ? "w1" : "gate_proj", c.d_ff_expert},
                                                {short_names ? "w3" : "up_proj", c.d_ff_expert}}};
  for (int64_t e = 0; e < c.n_experts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", mlp, e);
    layer.mlps.push_back({binder.linears(expert, gate_up, "gate_up_proj", c.d_model, false),
                          binder.linear(expert + (short_names ? "w2" : "down_proj"), c.d_model,
                                        c.d_ff_expert, false)});
  }
}

Status LlamaModel::build(const Bound& bound, ThreadPool& pool) {
  layers_.resize(bound.layers.size());
  for (size_t i = 0; i < layers_.size(); ++i)
    SX_TRY(build_layer(bound.layers[i], static_cast<int64_t>(i), pool));
  norm_ = to_floats(bound.norm);
  SX_ASSIGN(head_, packed(bound.head, pool));
  take_embedding(*bound.embedding);
  return {};
}

Status LlamaModel::build_layer(const BoundLayer& bound, int64_t i, ThreadPool& pool) {
  Layer& layer = layers_[static_cast<size_t>(i)];
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
  return {};
}

Result<Mlp> LlamaModel::build_mlp(const BoundMlp& bound, ThreadPool& pool) {
  Mlp mlp;
  SX_ASSIGN(mlp.gate, packed(bound.gate_up[0], pool));
  SX_ASSIGN(mlp.up, packed(bound.gate_up[1], pool));
  SX_ASSIGN(mlp.down, packed(bound.down, pool));
  return mlp;
}

Result<Moe> LlamaModel::build_moe(const BoundLayer& bound, ThreadPool& pool) {
  Moe moe;
  moe.normalize = config_.norm_top_k;
  SX_ASSIGN(moe.router, packed(bound.router, pool));
  const int64_t without_experts = bytes_per_token_;
  for (const BoundMlp& expert : bound.mlps) {
    SX_ASSIGN(Mlp mlp, build_mlp(expert, pool));
    moe.experts.push_back(std::move(mlp));
  }
  // A token reads top_k experts: so many of the mean size, where sizes differ.
  const int64_t all_experts = bytes_per_token_ - without_experts;
  bytes_per_token_ = without_experts + all_experts / config_.n_experts * config_.top_k;
  return moe;
}

Result<Linear> LlamaModel::packed(const BoundLinear& bound, ThreadPool& pool) {
  SX_ASSIGN(Linear linear, make_linear(bound, policy_for(bound, policy_), *ops_, pool));
  quantizes_inputs_ = quantizes_inputs_ || linear.input.quantizes();
  weight_bytes_ +=
      linear.packed.data.size() + linear.packed.row_multiplier.size() + linear.packed.scales.size();
  bytes_per_token_ += linear.packed.weight_bytes;
  return linear;
}

// Rows are gathered from the mapped file, so that only those that occur are resident; a quantized
// table has no rows to gather and is kept as float32.
void LlamaModel::take_embedding(const LinearRecord& record) {
  if (!is_quantized(record.scheme)) {
    embedding_ = record.weight.bytes().data();
    embedding_dtype_ = record.weight.info->dtype;
    return;
  }
  embedding_values_ = AlignedBuffer(record.n * record.k * int64_t{sizeof(float)});
  dequantize_rows(record, 0, record.n, embedding_values_.as<float>());
  release_pages(record.weight);
  embedding_ = embedding_values_.data();
  embedding_dtype_ = DType::kF32;
  weight_bytes_ += embedding_values_.size();
}

}  // namespace sextant
