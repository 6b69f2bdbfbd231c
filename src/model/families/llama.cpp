// Llama (arXiv:2302.13971, 2407.21783) and what was made after it: a residual stream of d_model,
// per layer attention and a gated MLP or experts, each on an RMS-normed copy (pre-norm), a final
// norm and the head. forward() reads like that, and its parts run alone as stages; binding stands
// below, packing in llama_build.cpp.
#include "model/families/llama.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "checkpoint/scan.h"

namespace sextant {

namespace {

// The rows whose logits are wanted, the last n of each sequence.
void gather_last(std::span<const StepSeq> seqs, StepBuffers& at) {
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

}  // namespace

void LlamaModel::forward(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> logits,
                         Probe* probe, ThreadPool& pool) const {
  SX_CHECK(!layers_.empty(), "the model was loaded to run stage by stage");
  const BlockContext context{*ops_, pool, Taps(probe), buffers, seqs};
  buffers.begin(seqs, rope_, pool);
  run_embedding(context, embedding_);
  for (int64_t i = 0; i < config_.n_layers; ++i)
    run_layer(context, layers_[static_cast<size_t>(i)], i);
  run_head(context, head_, logits);
}

void LlamaModel::run_embedding(const BlockContext& context, const Embedding& embedding) const {
  const Mat<float> h = context.at.hidden();
  context.ops.embed(embedding.table, embedding.dtype, config_.d_model, context.at.ids(), h);
  context.tap("embed", -1, h);
}

void LlamaModel::run_layer(const BlockContext& context, const Layer& layer, int64_t i) const {
  const Ops& ops = context.ops;
  const Mat<float> h = context.at.hidden();
  const Mat<float> x = context.at.normed();
  const Mat<float> out = context.at.out();

  ops.rms_norm(h, layer.attention_norm, config_.rms_eps, x, context.pool);
  context.tap("attn_in", i, x);
  layer.attention.run(context, i);
  ops.add(h, out, context.pool);

  ops.rms_norm(h, layer.mlp_norm, config_.rms_eps, x, context.pool);
  context.tap("mlp_in", i, x);
  std::visit([&](const auto& block) { block.run(context, i, x, out); }, layer.feed_forward);
  ops.add(h, out, context.pool);
  context.tap("hidden", i, h);
}

void LlamaModel::run_head(const BlockContext& context, const Head& head, Mat<float> logits) const {
  if (context.at.n_logit_rows() == 0) return;
  gather_last(context.seqs, context.at);
  const Mat<float> last = context.at.last();
  context.ops.rms_norm(last, head.norm, config_.rms_eps, last, context.pool);
  context.tap("norm", -1, last);
  const std::array<LinearCall, 1> call = {{{head.linear, logits, "logits"}}};
  run_linears(context, -1, last, call);
}

KvLayout LlamaModel::kv_layout() const {
  const bool f32 =
      std::all_of(bound_.layers.begin(), bound_.layers.end(), [&](const BoundLayer& layer) {
        return !policy_for(layer.qkv[1], policy_).from_bf16 &&  // keys and values
               !policy_for(layer.qkv[2], policy_).from_bf16;
      });
  KvLayout layout;
  layout.n_layers = config_.n_layers;
  layout.n_kv_heads = config_.n_kv_heads;
  layout.head_dim = config_.head_dim;
  layout.dtype = f32 ? DType::kF32 : DType::kBF16;
  return layout;
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
                                                      const Ops& ops, const ModelOptions& options,
                                                      ThreadPool& pool) {
  auto model = std::shared_ptr<LlamaModel>(
      new LlamaModel(std::move(checkpoint), std::move(config), std::move(policy), ops));
  SX_TRY(model->check_checkpoint(pool));
  SX_TRY(model->bind());
  if (!options.stages_on_demand) SX_TRY(model->build_all(pool));
  SX_TRY(model->warm_up(options));
  add_unmet_policies(plan_linears(model->linears_, model->policy_), model->findings_);
  return model;
}

// What the checkpoint itself has wrong with it. Comes before binding: a linear that lacks a scale
// has no record, and "missing scale" says more than "missing weight". What is wrong with activation
// scales alone is a warning where no policy wants one that is not there (cli.md section 4).
Status LlamaModel::check_checkpoint(ThreadPool& pool) {
  findings_ = checkpoint_->findings();
  for (Finding& finding : scan_scales(*checkpoint_, pool)) findings_.push_back(std::move(finding));
  for (const auto& [module, record] : checkpoint_->linears()) release_pages(record.scales);
  SX_TRY(refuse_checkpoint(*checkpoint_, findings_, policy_));
  for (Finding& finding : findings_)
    if (finding.severity == Severity::kError) finding.severity = Severity::kWarning;
  return {};
}

BoundModel LlamaModel::bind_only(const Checkpoint& checkpoint, ModelConfig config) {
  Binder binder(checkpoint);
  bind_all(config, binder);
  return {std::move(config), binder.linears(), binder.problems()};
}

Status LlamaModel::bind() {
  Binder binder(*checkpoint_);
  bound_ = bind_all(config_, binder);
  SX_TRY(binder.finish(findings_));
  linears_ = binder.linears();
  for (const BoundLinear& linear : linears_) linear_of_.emplace(linear.module, &linear);
  note_quantized_inputs();
  return check_patterns(policy_, binder.modules());
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

}  // namespace sextant
