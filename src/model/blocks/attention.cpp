// Implements blocks/attention.h.
#include "model/blocks/attention.h"

#include <array>

namespace sextant {
namespace {

// Heads as rows: each is normed on its own.
Mat<float> by_head(Mat<float> x, int64_t head_dim) {
  return {x.data, x.rows * (x.cols / head_dim), head_dim};
}

// Keys and values of this step into the pages of their sequences, before anybody attends.
void store(const BlockContext& context, int64_t layer, Mat<const float> k, Mat<const float> v) {
  int64_t row = 0;
  for (size_t s = 0; s < context.seqs.size(); ++s) {
    const StepSeq& seq = context.seqs[s];
    const DType dtype = seq.kv->layout().dtype;
    for (size_t i = 0; i < seq.ids.size(); ++i, ++row) {
      const int64_t pos = seq.pos_begin + static_cast<int64_t>(i);
      context.ops.store_kv(k.row(row), dtype, seq.kv->k_at(layer, pos));
      context.ops.store_kv(v.row(row), dtype, seq.kv->v_at(layer, pos));
    }
    context.at.spans()[s].kv = seq.kv->view(layer);
  }
}

}  // namespace

void Attention::run(const BlockContext& context, int64_t layer) const {
  const Ops& ops = context.ops;
  StepBuffers& at = context.at;
  const int64_t d = params.head_dim;

  const std::array<LinearCall, 3> qkv = {{{q, at.q(), "q"}, {k, at.k(), "k"}, {v, at.v(), "v"}}};
  run_linears(context, layer, at.normed(), qkv);
  if (!q_norm.empty()) {
    ops.rms_norm(by_head(at.q(), d), q_norm, norm_eps, by_head(at.q(), d), context.pool);
    ops.rms_norm(by_head(at.k(), d), k_norm, norm_eps, by_head(at.k(), d), context.pool);
    context.tap("q_norm", layer, at.q());
    context.tap("k_norm", layer, at.k());
  }
  ops.rope(at.q(), params.n_heads, d, at.cos(), at.sin(), context.pool);
  ops.rope(at.k(), params.n_kv_heads, d, at.cos(), at.sin(), context.pool);
  context.tap("q_rope", layer, at.q());
  context.tap("k_rope", layer, at.k());

  store(context, layer, at.k(), at.v());
  ops.attention(at.q(), at.spans(), params, at.attn(), context.pool);
  context.tap("attn_out", layer, at.attn());

  const std::array<LinearCall, 1> out = {{{o, at.out(), "o"}}};
  run_linears(context, layer, at.attn(), out);
}

}  // namespace sextant
