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
  return {};
}

}  // namespace sextant
