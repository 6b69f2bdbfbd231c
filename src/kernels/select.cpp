// Which tables this processor can run, and the choice among them.
#include <string>

#include "base/cpu_info.h"
#include "kernels/ops.h"
#include "kernels/tables.h"

namespace sextant {

std::vector<const Ops*> available_ops() {
  std::vector<const Ops*> tables;
#if defined(SX_HAVE_AVX512)
  const CpuInfo& cpu = cpu_info();
  if (cpu.avx512 && cpu.amx_bf16 && amx_permitted()) tables.push_back(&amx_ops());
  if (cpu.avx512 && cpu.slow_bf16_dot) tables.push_back(&avx512_nobf16_ops());
  if (cpu.avx512_bf16) tables.push_back(&avx512_ops());
  if (cpu.avx512 && !cpu.slow_bf16_dot) tables.push_back(&avx512_nobf16_ops());
#endif
#if defined(SX_HAVE_AVX2)
  if (cpu_info().avx2) tables.push_back(&avx2_ops());
#endif
  tables.push_back(&ref_ops());
  return tables;
}

Result<const Ops*> select_ops(std::string_view name) {
  const std::vector<const Ops*> tables = available_ops();
  if (name.empty() || name == "auto") return tables.front();
  std::string known;
  for (const Ops* table : tables) {
    if (name == table->name) return table;
    known += known.empty() ? "" : ", ";
    known += table->name;
  }
  return fail(Code::kUnsupported,
              "expected an instruction set that this build and this processor ({}) have, found "
              "\"{}\": choose one of {}",
              cpu_info().model_name, name, known);
}

}  // namespace sextant
