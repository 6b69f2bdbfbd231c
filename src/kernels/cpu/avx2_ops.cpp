// The table "avx2": ref with what this ISA has in its place.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/rows.h"
#include "kernels/tables.h"

namespace sextant {
namespace {

const cpu::Isa& isa() {
  static const cpu::Isa filled = [] {
    cpu::Isa one{};
    one.name = "avx2";
    cpu::avx2_fill_linear(&one);
    cpu::avx2_fill_attention(&one);
    cpu::avx2_fill_rows(&one);
    return one;
  }();
  return filled;
}

PackedLinear pack(const WeightSource& source, ThreadPool& pool) {
  return cpu::pack_groups(source, "avx2", pool);
}
std::string_view linear_path(WeightForm form, ActForm act) {
  if (act == ActForm::kNvfp4 && form == WeightForm::kNvfp4)
    return "float32 FMA; block sums are exact";
  return "float32 FMA";
}

void linear(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
            std::span<const Mat<float>> ys, ThreadPool& pool) {
  cpu::linear(isa(), ws, x, act, ys, pool);
}
void attention(Mat<const float> q, std::span<const AttentionSeq> seqs,
               const AttentionParams& params, Mat<float> out, ThreadPool& pool) {
  cpu::attention(isa(), q, seqs, params, out, pool);
}
void rms_norm(Mat<const float> x, std::span<const float> weight, float eps, Mat<float> y,
              ThreadPool& pool) {
  cpu::rms_norm(isa(), x, weight, eps, y, pool);
}
void rope(Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
          Mat<const float> sin, ThreadPool& pool) {
  cpu::rope(isa(), x, n_heads, head_dim, cos, sin, pool);
}
void silu_mul(Mat<const float> gate, Mat<const float> up, Mat<float> out, ThreadPool& pool) {
  cpu::silu_mul(isa(), gate, up, out, pool);
}
void add(Mat<float> x, Mat<const float> y, ThreadPool& pool) { cpu::add(isa(), x, y, pool); }
void add_bias(Mat<float> x, std::span<const float> bias, ThreadPool& pool) {
  cpu::add_bias(isa(), x, bias, pool);
}
void store_kv(std::span<const float> src, DType dtype, void* dst) {
  cpu::store_kv(isa(), src, dtype, dst);
}

}  // namespace

const Ops& avx2_ops() {
  static const Ops ops = [] {
    Ops table = ref_ops();
    table.name = "avx2";
    table.pack = pack;
    table.linear = linear;
    table.linear_path = linear_path;
    table.attention = attention;
    table.rms_norm = rms_norm;
    table.rope = rope;
    table.silu_mul = silu_mul;
    table.add = add;
    table.add_bias = add_bias;
    table.store_kv = store_kv;
    return table;
  }();
  return ops;
}

}  // namespace sextant
