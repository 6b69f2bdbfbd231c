// The table "avx2": ref with what this ISA has in its place.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear.h"
#include "kernels/tables.h"

namespace sextant {
namespace {

const cpu::Isa& isa() {
  static const cpu::Isa filled = [] {
    cpu::Isa one{};
    one.name = "avx2";
    cpu::avx2_fill_linear(&one);
    return one;
  }();
  return filled;
}

PackedLinear pack(const WeightSource& source, ThreadPool& pool) {
  return cpu::pack_groups(source, "avx2", pool);
}

void linear(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
            std::span<const Mat<float>> ys, ThreadPool& pool) {
  cpu::linear(isa(), ws, x, act, ys, pool);
}

}  // namespace

const Ops& avx2_ops() {
  static const Ops ops = [] {
    Ops table = ref_ops();
    table.name = "avx2";
    table.pack = pack;
    table.linear = linear;
    return table;
  }();
  return ops;
}

}  // namespace sextant
