// Linear layers of the AVX-512 tables: packs the input once, splits supergroups (and tokens, where
// there are few supergroups) over the pool. Which kernel computes an element depends on layout and
// input form only, never on the split.
#include <algorithm>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/cpu/avx512_driver.h"
#include "kernels/scratch.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

constexpr int64_t kMinTokens = 48;  // of one task, and its grain: whole tiles of 12 and of 16
constexpr size_t kMaxLinears = 16;

Layout layout_of(const PackedLinear& w) { return static_cast<Layout>(w.layout); }

bool takes(Bf16Unit unit, const PackedLinear& w) {
  if (unit == Bf16Unit::kNone) return false;
  if (unit == Bf16Unit::kTiles && w.scales.size() != 0 && w.block_k % 32 != 0) return false;
  return layout_of(w) != Layout::kF16 && layout_of(w) != Layout::kF32;
}

// The input as the kernels want it, in the caller's scratch; null where no linear needs the form.
struct Inputs {
  Bf16Unit unit = Bf16Unit::kNone;
  uint32_t* bf16 = nullptr;  // tiles of tokens (kDot) or rows (kTiles)
  float* f32 = nullptr;
  int64_t k_padded = 0;
  int64_t row_stride = 0;  // BF16 elements, kTiles

  Inputs(int64_t k, Bf16Unit unit_, bool any_bf16, bool any_f32)
      : unit(unit_),
        k_padded(std::max<int64_t>(round_up(k, 16), 16)),
        row_stride(round_up(k_padded, 32)) {
    const int64_t bf16_words = any_bf16 ? (kMaxTokens + kAmxTokens) * row_stride / 2 : 0;
    const int64_t f32_words = any_f32 ? kMaxTokens * k_padded : 0;
    auto* words = scratch<uint32_t>(Scratch::kInput, bf16_words + f32_words);
    if (any_bf16) bf16 = words;
    if (any_f32) f32 = reinterpret_cast<float*>(words + bf16_words);
  }

  // Tokens [token, token + width).
  void pack(Mat<const float> x, ActForm act, int64_t token, int64_t width) const {
    const float* from = x.data + token * x.stride;
    if (bf16 != nullptr && unit == Bf16Unit::kDot)
      pack_input_bf16(from, x.stride, width, x.cols, k_padded, bf16 + token * (k_padded / 2));
    if (bf16 != nullptr && unit == Bf16Unit::kTiles)
      for (int64_t i = 0; i < width; ++i)
        pack_input_amx(from + i * x.stride, token + i, x.cols, row_stride,
                       reinterpret_cast<uint16_t*>(bf16));
    if (f32 != nullptr)
      pack_input_f32(from, x.stride, width, x.cols, k_padded, act == ActForm::kBf16,
                     f32 + token * k_padded);
  }
};

void pack_input(Mat<const float> x, ActForm act, const Inputs& inputs, ThreadPool& pool) {
  const int64_t full = x.rows / kTileTokens;
  pool.run(full, [&](int64_t tile, int) { inputs.pack(x, act, tile * kTileTokens, kTileTokens); });
  for (int64_t token = full * kTileTokens; token < x.rows;) {
    const int64_t width = tile_width(x.rows - token);
    inputs.pack(x, act, token, width);
    token += width;
  }
}

void run_super(const PackedLinear& w, int64_t super, int64_t token_begin, int64_t token_end,
               const Inputs& inputs, bool bf16, Mat<float> y) {
  const int64_t row = super * kSuperRows;
  const int64_t n_padded = round_up(w.n, kGroupRows);
  LinearTask t;
  t.layout = layout_of(w);
  t.rows = std::min(kSuperRows, w.n - row);
  t.groups = ceil_div(t.rows, kGroupRows);
  t.data = w.data.as<const unsigned char>() + w.data.size() / (n_padded / kGroupRows) * super * 4;
  t.k_padded = inputs.k_padded;
  if (w.scales.size() != 0) {
    t.block_k = w.block_k;
    t.scales = w.scales.as<const float>() + row;
    t.scale_stride = n_padded;
  }
  t.multiplier = w.row_multiplier.as<const float>() + row;
  t.x_stride = inputs.row_stride;
  t.x = bf16 ? static_cast<const void*>(inputs.bf16) : static_cast<const void*>(inputs.f32);
  t.token_begin = token_begin;
  t.token_end = token_end;
  t.y = y.data + row;
  t.y_stride = y.stride;
  t.panel = scratch_bytes(Scratch::kPanel, kPanelBytes);
  if (bf16 && inputs.unit == Bf16Unit::kTiles) {
    t.sums = scratch<float>(Scratch::kTotals, kSumFloats);
    linear_amx(t);
  } else if (bf16)
    linear_bf16(t);
  else
    linear_f32(t);
}

// At most kMaxTokens rows.
void linear_pass(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
                 std::span<const Mat<float>> ys, ThreadPool& pool, Bf16Unit unit) {
  if (act != ActForm::kBf16) unit = Bf16Unit::kNone;
  int64_t ends[kMaxLinears];  // supergroups of ws[0 .. i]
  int64_t n_supers = 0;
  bool any_bf16 = false;
  bool any_f32 = false;
  for (size_t i = 0; i < ws.size(); ++i) {
    ends[i] = n_supers += ceil_div(ws[i]->n, kSuperRows);
    const bool bf16 = takes(unit, *ws[i]);
    any_bf16 |= bf16;
    any_f32 |= !bf16;
  }
  if (n_supers == 0) return;
  const Inputs inputs(x.cols, unit, any_bf16, any_f32);
  pack_input(x, act, inputs, pool);

  int64_t n_parts = 1;  // of the tokens
  const int64_t wanted = int64_t{4} * pool.n_threads();
  if (pool.n_threads() > 1 && n_supers < wanted)
    n_parts = std::max<int64_t>(1, std::min(ceil_div(wanted, n_supers), x.rows / kMinTokens));
  const int64_t part_tokens = round_up(ceil_div(x.rows, n_parts), kMinTokens);
  n_parts = ceil_div(x.rows, part_tokens);
  const int64_t n_units = n_supers * n_parts;
  const int64_t n_tasks = x.rows >= kTileTokens ? n_units : std::min(n_units, 2 * wanted);
  pool.run(n_tasks, [&](int64_t task, int) {
    for (int64_t at = n_units * task / n_tasks; at < n_units * (task + 1) / n_tasks; ++at) {
      const int64_t super = at / n_parts;
      size_t i = 0;
      while (super >= ends[i]) ++i;
      const int64_t token = at % n_parts * part_tokens;
      run_super(*ws[i], super - (i == 0 ? 0 : ends[i - 1]), token,
                std::min(token + part_tokens, x.rows), inputs, takes(unit, *ws[i]), ys[i]);
    }
  });
}

}  // namespace

void linear(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
            std::span<const Mat<float>> ys, ThreadPool& pool, Bf16Unit unit) {
  SX_CHECK(ws.size() == ys.size() && ws.size() <= kMaxLinears, "{} weights, {} outputs", ws.size(),
           ys.size());
  for (size_t i = 0; i < ws.size(); ++i)
    SX_CHECK(x.cols == ws[i]->k && ys[i].rows == x.rows && ys[i].cols == ws[i]->n,
             "[{}, {}] * [{}, {}]^T -> [{}, {}]", x.rows, x.cols, ws[i]->n, ws[i]->k, ys[i].rows,
             ys[i].cols);
  for (int64_t row = 0; row < x.rows; row += kMaxTokens) {
    const int64_t n = std::min(kMaxTokens, x.rows - row);
    Mat<float> parts[kMaxLinears];
    for (size_t i = 0; i < ws.size(); ++i) parts[i] = ys[i].row_range(row, n);
    linear_pass(ws, x.row_range(row, n), act, {parts, ws.size()}, pool, unit);
  }
}

}  // namespace sextant::SX_AVX512_NAMESPACE
