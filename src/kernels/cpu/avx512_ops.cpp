// The tables amx, avx512 and avx512-nobf16: everything but linear layers split over the pool here,
// and the pointers. What is not listed in table() stays the base's: embed and store_kv copy a few
// rows.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/avx512_driver.h"
#include "kernels/scratch.h"
#include "kernels/tables.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

template <class F>
void for_rows(int64_t n_rows, ThreadPool& pool, F&& f) {
  pool.split(n_rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

void rms_norm(Mat<const float> x, std::span<const float> weight, float eps, Mat<float> y,
              ThreadPool& pool) {
  SX_CHECK(x.rows == y.rows && x.cols == y.cols && static_cast<int64_t>(weight.size()) == x.cols,
           "[{}, {}] -> [{}, {}], weight [{}]", x.rows, x.cols, y.rows, y.cols, weight.size());
  for_rows(x.rows, pool, [&](int64_t row) {
    rms_norm_row(x.data + row * x.stride, weight.data(), eps, x.cols, y.data + row * y.stride);
  });
}

void rope(Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
          Mat<const float> sin, ThreadPool& pool) {
  SX_CHECK(x.cols == n_heads * head_dim && cos.rows == x.rows && sin.rows == x.rows &&
               cos.cols == sin.cols && 2 * cos.cols <= head_dim,
           "x [{}, {}], {} heads of {}, cos [{}, {}], sin [{}, {}]", x.rows, x.cols, n_heads,
           head_dim, cos.rows, cos.cols, sin.rows, sin.cols);
  for_rows(x.rows, pool, [&](int64_t row) {
    for (int64_t head = 0; head < n_heads; ++head)
      rope_head(x.data + row * x.stride + head * head_dim, cos.cols, cos.data + row * cos.stride,
                sin.data + row * sin.stride);
  });
}

void silu_mul(Mat<const float> gate, Mat<const float> up, Mat<float> out, ThreadPool& pool) {
  SX_CHECK(gate.rows == up.rows && gate.cols == up.cols && gate.rows == out.rows &&
               gate.cols == out.cols,
           "[{}, {}] * [{}, {}] -> [{}, {}]", gate.rows, gate.cols, up.rows, up.cols, out.rows,
           out.cols);
  for_rows(out.rows, pool, [&](int64_t row) {
    silu_mul_row(gate.data + row * gate.stride, up.data + row * up.stride, out.cols,
                 out.data + row * out.stride);
  });
}

void add(Mat<float> x, Mat<const float> y, ThreadPool& pool) {
  SX_CHECK(x.rows == y.rows && x.cols == y.cols, "[{}, {}] += [{}, {}]", x.rows, x.cols, y.rows,
           y.cols);
  for_rows(x.rows, pool,
           [&](int64_t row) { add_row(x.data + row * x.stride, y.data + row * y.stride, x.cols); });
}

void add_bias(Mat<float> x, std::span<const float> bias, ThreadPool& pool) {
  SX_CHECK(static_cast<int64_t>(bias.size()) == x.cols, "[{}, {}] += [{}]", x.rows, x.cols,
           bias.size());
  for_rows(x.rows, pool,
           [&](int64_t row) { add_row(x.data + row * x.stride, bias.data(), x.cols); });
}

// One query row and one key head.
void attend(Mat<const float> q, const AttentionSeq& seq, const AttentionParams& params,
            Mat<float> out, int64_t row, int64_t kv_head) {
  const int64_t shared = params.n_heads / params.n_kv_heads;
  const int64_t col = kv_head * shared * params.head_dim;
  const int64_t pos = seq.pos_begin + row;
  AttentionTask t;
  t.q = q.data + (seq.row_begin + row) * q.stride + col;
  t.out = out.data + (seq.row_begin + row) * out.stride + col;
  t.n_heads = shared;
  t.head_dim = params.head_dim;
  t.k_pages = seq.kv.k_pages;
  t.v_pages = seq.kv.v_pages;
  t.bf16 = seq.kv.dtype == DType::kBF16;
  t.page_tokens = seq.kv.page_tokens;
  t.kv_stride = params.n_kv_heads * params.head_dim;
  t.kv_offset = kv_head * params.head_dim;
  t.pos_begin = params.window > 0 ? std::max<int64_t>(0, pos - params.window + 1) : 0;
  t.pos_end = pos + 1;
  t.scale = params.scale;
  t.scratch = scratch<float>(Scratch::kAttention, attention_scratch_floats(params.head_dim));
  attention_heads(t);
}

// Units are (sequence, key head, row), rows innermost so that neighbors share keys in cache.
void attention(Mat<const float> q, std::span<const AttentionSeq> seqs,
               const AttentionParams& params, Mat<float> out, ThreadPool& pool) {
  SX_CHECK(q.rows == out.rows && q.cols == out.cols && q.cols == params.n_heads * params.head_dim &&
               params.n_kv_heads > 0 && params.n_heads % params.n_kv_heads == 0,
           "q [{}, {}], out [{}, {}], {} heads of {}, {} key heads", q.rows, q.cols, out.rows,
           out.cols, params.n_heads, params.head_dim, params.n_kv_heads);
  int64_t n_units = 0;
  for (const AttentionSeq& seq : seqs) {
    SX_CHECK(seq.row_begin >= 0 && seq.row_begin + seq.n_rows <= q.rows && seq.pos_begin >= 0,
             "rows {} + {} of {}", seq.row_begin, seq.n_rows, q.rows);
    n_units += seq.n_rows * params.n_kv_heads;
  }
  const int64_t n_tasks = std::min(n_units, int64_t{16} * pool.n_threads());
  pool.run(n_tasks, [&](int64_t task, int) {
    const int64_t end = n_units * (task + 1) / n_tasks;
    int64_t unit = n_units * task / n_tasks;
    int64_t first = 0;  // unit of the sequence at hand
    for (const AttentionSeq& seq : seqs) {
      const int64_t last = first + seq.n_rows * params.n_kv_heads;
      for (; unit < std::min(end, last); ++unit)
        attend(q, seq, params, out, (unit - first) % seq.n_rows, (unit - first) / seq.n_rows);
      first = last;
    }
  });
}

template <Bf16Unit unit>
void linear_of(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
               std::span<const Mat<float>> ys, ThreadPool& pool) {
  linear(ws, x, act, ys, pool, unit);
}

template <Bf16Unit unit>
std::string_view linear_path(WeightForm form, ActForm act) {
  if (act == ActForm::kNvfp4 && form == WeightForm::kNvfp4)
    return "float32 FMA; block sums are exact";
  const bool f32 = form == WeightForm::kF32 || form == WeightForm::kF16;
  if (unit == Bf16Unit::kNone || act != ActForm::kBf16 || f32) return "float32 FMA";
  return unit == Bf16Unit::kTiles ? "BF16 tiles, float32 sums" : "BF16 dot products, float32 sums";
}

constexpr const char* kNames[] = {"avx512-nobf16", "avx512", "amx"};  // by Bf16Unit
template <Bf16Unit unit>
PackedLinear pack_of(const WeightSource& source, ThreadPool& pool) {
  return pack_r16(source, pool, kNames[static_cast<size_t>(unit)], unit);
}

template <Bf16Unit unit>
Ops table_of(const Ops& base) {
  Ops ops = base;
  ops.name = kNames[static_cast<size_t>(unit)];
  ops.pack = pack_of<unit>;
  ops.linear = linear_of<unit>;
  ops.linear_path = linear_path<unit>;
  ops.rms_norm = rms_norm;
  ops.rope = rope;
  ops.attention = attention;
  ops.silu_mul = silu_mul;
  ops.add = add;
  ops.add_bias = add_bias;
  return ops;
}

}  // namespace

Ops table(const Ops& base, Bf16Unit unit) {
  switch (unit) {
    case Bf16Unit::kNone: return table_of<Bf16Unit::kNone>(base);
    case Bf16Unit::kDot: return table_of<Bf16Unit::kDot>(base);
    case Bf16Unit::kTiles: break;
  }
  return table_of<Bf16Unit::kTiles>(base);
}

}  // namespace sextant::SX_AVX512_NAMESPACE

namespace sextant {
namespace {
const Ops& base_ops() {
#if defined(SX_HAVE_AVX2)
  return avx2_ops();
#else
  return ref_ops();
#endif
}
}  // namespace

const Ops& avx512_ops() {
  static const Ops ops =
      SX_AVX512_NAMESPACE::table(base_ops(), SX_AVX512_NAMESPACE::Bf16Unit::kDot);
  return ops;
}

const Ops& avx512_nobf16_ops() {
  static const Ops ops =
      SX_AVX512_NAMESPACE::table(base_ops(), SX_AVX512_NAMESPACE::Bf16Unit::kNone);
  return ops;
}

const Ops& amx_ops() {
  static const Ops ops =
      SX_AVX512_NAMESPACE::table(base_ops(), SX_AVX512_NAMESPACE::Bf16Unit::kTiles);
  return ops;
}

// Linux keeps the 8 KB of tile registers from a process until it asks (arch_prctl(2),
// ARCH_REQ_XCOMP_PERM for feature 18); threads share the answer.
bool amx_permitted() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool permitted = ::syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return permitted;
#else
  return false;
#endif
}

}  // namespace sextant
