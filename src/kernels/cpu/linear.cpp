#include "kernels/cpu/linear.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/cpu/layout.h"
#include "kernels/plan.h"
#include "kernels/scratch.h"

namespace sextant::cpu {
namespace {

struct Call {
  const Isa& isa;
  std::span<const PackedLinear* const> ws;
  std::span<const Mat<float>> ys;
  LinearPlan plan;
};

// One group of 32 rows of one of the weights.
struct GroupRef {
  const PackedLinear* w;
  const Mat<float>* y;
  int64_t row_begin;
  Kind kind;
  int64_t k;        // as laid out
  int64_t block_k;  // columns a scale covers in the layout, 0 without
  const uint8_t* data;
};

int64_t layout_block(Kind kind, const PackedLinear& w) {
  if (kind == kKindNvfp4 || kind == kKindMxfp4) return 16;
  return kind == kKindFp8Blocks ? w.block_k : 0;
}

// f(group) for groups [begin, end) counted over all weights.
template <class F>
void for_groups(const Call& call, int64_t begin, int64_t end, F&& f) {
  int64_t first = 0;
  for (size_t i = 0; i < call.ws.size(); ++i) {
    const PackedLinear& w = *call.ws[i];
    const int64_t n_groups = ceil_div(w.n, kGroupRows);
    const Kind kind = kind_of(w);
    const int64_t stride = group_stride(w);
    const int64_t k = padded_k(w.form, w.k);
    const int64_t block_k = layout_block(kind, w);
    const int64_t to = std::min(end - first, n_groups);
    for (int64_t g = std::max<int64_t>(0, begin - first); g < to; ++g)
      f(GroupRef{&w, &call.ys[i], g * kGroupRows, kind, k, block_k,
                 w.data.as<const uint8_t>() + g * stride});
    first += n_groups;
  }
}

// totals [n][32] times multipliers into rows of y from token on.
void finish(const GroupRef& group, const float* totals, int64_t token, int64_t n) {
  const float* multiplier = group.w->row_multiplier.as<const float>() + group.row_begin;
  const int64_t rows = std::min(kGroupRows, group.w->n - group.row_begin);
  for (int64_t t = 0; t < n; ++t) {
    float* y = group.y->data + (token + t) * group.y->stride + group.row_begin;
    const float* total = totals + t * kGroupRows;
    for (int64_t r = 0; r < rows; ++r) y[r] = total[r] * multiplier[r];
  }
}

void direct_group(const Call& call, const GroupRef& group, Mat<const float> x) {
  alignas(64) float totals[kMaxDirectTokens * kGroupRows];
  for (int64_t token = 0; token < x.rows; token += call.plan.token_tile) {
    const int64_t n = std::min(call.plan.token_tile, x.rows - token);
    const DirectArgs args{group.data, group.k, group.block_k, x.data + token * x.stride,
                          x.stride,   totals};
    call.isa.direct[group.kind][n - 1](args);
    finish(group, totals, token, n);
  }
}

// Rows [begin, end) of prepared x, which are rows token_base + begin ... of y.
void panel_group(const Call& call, const GroupRef& group, Mat<const float> x, int64_t begin,
                 int64_t end, int64_t token_base) {
  const LinearPlan& plan = call.plan;
  const int64_t chunk = group.block_k == 0
                            ? plan.k_chunk
                            : std::max(group.block_k, plan.k_chunk / group.block_k * group.block_k);
  float* panel = scratch<float>(Scratch::kPanel, chunk * kGroupRows);
  const int64_t max_blocks = group.block_k == 0 ? 0 : ceil_div(chunk, group.block_k);
  float* scales = scratch<float>(Scratch::kScales, max_blocks * kGroupRows);
  float* totals = scratch<float>(Scratch::kTotals, plan.token_chunk * kGroupRows);
  std::fill_n(totals, (end - begin) * kGroupRows, 0.0F);
  for (int64_t k = 0; k < group.k; k += chunk) {
    const int64_t k_end = std::min(group.k, k + chunk);
    const int64_t blocks = group.block_k == 0 ? 0 : ceil_div(k_end - k, group.block_k);
    call.isa.expand[group.kind]({group.data, group.k, group.block_k, k, k_end, panel, scales});
    for (int64_t token = begin; token < end; token += plan.token_tile) {
      const int64_t n = std::min(plan.token_tile, end - token);
      for (int64_t half = 0; half < 2; ++half) {
        const TileArgs args{panel + half * (k_end - k) * kHalfRows,
                            blocks == 0 ? nullptr : scales + half * blocks * kHalfRows,
                            k_end - k,
                            group.block_k,
                            x.data + token * x.stride + k,
                            x.stride,
                            totals + (token - begin) * kGroupRows + half * kHalfRows};
        (blocks == 0 ? call.isa.tile_plain : call.isa.tile_scaled)[n - 1](args);
      }
    }
  }
  finish(group, totals, token_base + begin, end - begin);
}

bool usable_as_is(Mat<const float> x, ActForm act, int64_t k_padded) {
  return act != ActForm::kBf16 && x.cols == k_padded;
}

// Rows of x as the kernels take them: rounded for a16, padded with zeros to whole blocks.
Mat<const float> prepare(const Isa& isa, Mat<const float> x, ActForm act, int64_t k_padded,
                         int64_t max_rows, ThreadPool& pool) {
  if (usable_as_is(x, act, k_padded)) return x;
  const int64_t stride = round_up(k_padded, 16);
  float* data = scratch<float>(Scratch::kInput, max_rows * stride);
  const auto rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      isa.prepare(x.data + i * x.stride, x.cols, act == ActForm::kBf16, data + i * stride,
                  k_padded);
  };
  if (x.rows > 8)
    pool.split(x.rows, 1, rows);
  else
    rows(0, x.rows, 0);
  return {data, x.rows, k_padded, stride};
}

void run_chunk(const Call& call, Mat<const float> x, int64_t n_groups, int64_t token_base,
               ThreadPool& pool) {
  const LinearPlan& plan = call.plan;
  if (plan.path != LinearPath::kPanel) {
    pool.run(plan.n_tasks, [&](int64_t task, int) {
      for_groups(call, n_groups * task / plan.n_tasks, n_groups * (task + 1) / plan.n_tasks,
                 [&](const GroupRef& group) { direct_group(call, group, x); });
    });
    return;
  }
  const int64_t tiles = ceil_div(x.rows, plan.token_tile);
  pool.run(plan.n_tasks, [&](int64_t task, int) {
    const int64_t part = task % plan.token_split;
    const int64_t g = task / plan.token_split;
    const int64_t begin = tiles * part / plan.token_split * plan.token_tile;
    const int64_t end = std::min(x.rows, tiles * (part + 1) / plan.token_split * plan.token_tile);
    for_groups(call, g, g + 1,
               [&](const GroupRef& group) { panel_group(call, group, x, begin, end, token_base); });
  });
}

}  // namespace

void linear(const Isa& isa, std::span<const PackedLinear* const> ws, Mat<const float> x,
            ActForm act, std::span<const Mat<float>> ys, ThreadPool& pool) {
  SX_CHECK(ws.size() == ys.size(), "{} weights, {} outputs", ws.size(), ys.size());
  LinearShape shape{x.rows, x.cols, 0, 0};
  int64_t k_padded = x.cols;
  for (size_t i = 0; i < ws.size(); ++i) {
    const PackedLinear& w = *ws[i];
    SX_CHECK(x.cols == w.k && ys[i].rows == x.rows && ys[i].cols == w.n &&
                 std::string_view(w.table) == isa.name,
             "[{}, {}] * [{}, {}]^T -> [{}, {}], packed by {}", x.rows, x.cols, w.n, w.k,
             ys[i].rows, ys[i].cols, w.table);
    shape.n_groups += ceil_div(w.n, kGroupRows);
    k_padded = std::max(k_padded, padded_k(w.form, w.k));
  }
  if (x.rows == 0 || shape.n_groups == 0) return;
  shape.k = k_padded;
  const Call call{isa, ws, ys, plan_linear(shape, LinearLimits{}, pool.n_threads())};
  const int64_t chunk = call.plan.token_chunk;
  for (int64_t token = 0; token < x.rows; token += chunk) {
    const int64_t n = std::min(chunk, x.rows - token);
    const Mat<const float> ready = prepare(isa, x.row_range(token, n), act, k_padded, chunk, pool);
    run_chunk(call, ready, shape.n_groups, token, pool);
  }
}

}  // namespace sextant::cpu
