#include "kernels/ref/ref.h"
#include "kernels/tables.h"

namespace sextant {

const Ops& ref_ops() {
  static const Ops ops = {.name = "ref",
                          .pack = ref::pack,
                          .linear = ref::linear,
                          .linear_path = ref::linear_path,
                          .rms_norm = ref::rms_norm,
                          .rope = ref::rope,
                          .attention = ref::attention,
                          .silu_mul = ref::silu_mul,
                          .add = ref::add,
                          .add_bias = ref::add_bias,
                          .embed = ref::embed,
                          .store_kv = ref::store_kv};
  return ops;
}

}  // namespace sextant
