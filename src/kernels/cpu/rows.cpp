#include "kernels/cpu/rows.h"

#include <cstring>

#include "base/check.h"
#include "kernels/plan.h"

namespace sextant::cpu {
namespace {

// f(row) for every row, in as many tasks as are worth a fork.
template <class F>
void for_rows(int64_t n_rows, int64_t n_cols, ThreadPool& pool, F&& f) {
  const int64_t per_task = rows_per_task(n_rows, n_cols, pool.n_threads());
  if (per_task >= n_rows) {
    for (int64_t i = 0; i < n_rows; ++i) f(i);
    return;
  }
  pool.split(n_rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace

void rms_norm(const Isa& isa, Mat<const float> x, std::span<const float> weight, float eps,
              Mat<float> y, ThreadPool& pool) {
  SX_CHECK(x.rows == y.rows && x.cols == y.cols && static_cast<int64_t>(weight.size()) == x.cols,
           "[{}, {}] -> [{}, {}], weight [{}]", x.rows, x.cols, y.rows, y.cols, weight.size());
  for_rows(x.rows, x.cols, pool, [&](int64_t i) {
    isa.rms_norm(x.data + i * x.stride, weight.data(), eps, x.cols, y.data + i * y.stride);
  });
}

void rope(const Isa& isa, Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
          Mat<const float> sin, ThreadPool& pool) {
  SX_CHECK(x.cols == n_heads * head_dim && cos.rows == x.rows && sin.rows == x.rows &&
               cos.cols == sin.cols && 2 * cos.cols <= head_dim,
           "x [{}, {}], {} heads of {}, cos [{}, {}], sin [{}, {}]", x.rows, x.cols, n_heads,
           head_dim, cos.rows, cos.cols, sin.rows, sin.cols);
  for_rows(x.rows, x.cols, pool, [&](int64_t i) {
    for (int64_t head = 0; head < n_heads; ++head)
      isa.rope(x.data + i * x.stride + head * head_dim, cos.data + i * cos.stride,
               sin.data + i * sin.stride, cos.cols);
  });
}

void silu_mul(const Isa& isa, Mat<const float> gate, Mat<const float> up, Mat<float> out,
              ThreadPool& pool) {
  SX_CHECK(gate.rows == up.rows && gate.cols == up.cols && gate.rows == out.rows &&
               gate.cols == out.cols,
           "gate [{}, {}], up [{}, {}], out [{}, {}]", gate.rows, gate.cols, up.rows, up.cols,
           out.rows, out.cols);
  for_rows(gate.rows, gate.cols, pool, [&](int64_t i) {
    isa.silu_mul(gate.data + i * gate.stride, up.data + i * up.stride, gate.cols,
                 out.data + i * out.stride);
  });
}

void add(const Isa& isa, Mat<float> x, Mat<const float> y, ThreadPool& pool) {
  SX_CHECK(x.rows == y.rows && x.cols == y.cols, "[{}, {}] += [{}, {}]", x.rows, x.cols, y.rows,
           y.cols);
  for_rows(x.rows, x.cols, pool,
           [&](int64_t i) { isa.add(x.data + i * x.stride, y.data + i * y.stride, x.cols); });
}

void add_bias(const Isa& isa, Mat<float> x, std::span<const float> bias, ThreadPool& pool) {
  SX_CHECK(static_cast<int64_t>(bias.size()) == x.cols, "[{}, {}] += bias [{}]", x.rows, x.cols,
           bias.size());
  for_rows(x.rows, x.cols, pool,
           [&](int64_t i) { isa.add(x.data + i * x.stride, bias.data(), x.cols); });
}

void store_kv(const Isa& isa, std::span<const float> src, DType dtype, void* dst) {
  SX_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "cache dtype {}",
           static_cast<int>(dtype));
  if (dtype == DType::kBF16)
    isa.narrow_bf16(src.data(), static_cast<int64_t>(src.size()), static_cast<uint16_t*>(dst));
  else if (!src.empty())
    std::memcpy(dst, src.data(), src.size_bytes());
}

}  // namespace sextant::cpu
