// In place of kernels/select.cpp: the emulated AVX-512 tables, which run on any processor, and ref.
#include "kernels/ops.h"
#include "kernels/tables.h"

namespace sextant {

std::vector<const Ops*> available_ops() {
  return {&amx_ops(), &avx512_ops(), &avx512_nobf16_ops(), &ref_ops()};
}

Result<const Ops*> select_ops(std::string_view name) {
  for (const Ops* table : available_ops())
    if (name == table->name) return table;
  if (name.empty() || name == "auto") return available_ops().front();
  return fail(Code::kUnsupported, "no emulated table \"{}\"", name);
}

}  // namespace sextant
