#include "doctor/checks/checks.h"

#include <fmt/format.h>

#include "checkpoint/dialects/dialect.h"

namespace sextant {

Finding about_tensor(const TensorRef& ref, const char* id, const char* slug, Severity severity,
                     std::string message, std::string remedy) {
  Finding f = finding_at(id, slug, severity, ref, std::move(message), std::move(remedy));
  if (ref) f.file = ref.file->path().filename().string();
  return f;
}

TensorRef tensor_of(const Checkpoint& checkpoint, const std::string& module,
                    std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const TensorRef ref = checkpoint.tensor(fmt::format("{}.{}", module, name))) return ref;
  // An expert's part of a stack goes by the stack's name, gate_up_proj_weight_scale_2.
  const LinearRecord* record = checkpoint.linear(module);
  if (record == nullptr || record->weight.expert < 0) return {};
  for (const std::string_view name : names)
    for (const TensorRef& slice : checkpoint.slices_of(*record))
      if (slice.info->name.ends_with(name)) return slice;
  return {};
}

}  // namespace sextant
