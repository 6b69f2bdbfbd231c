// Whether two checkpoints are copies, byte for byte; what differs between copies is a fault that no
// statistic sees, be it one bit of one scale.
#include <cstring>

#include <fmt/format.h>

#include "doctor/against.h"
#include "io/mapped_file.h"
#include "io/quote.h"

namespace sextant {
namespace {

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

bool same_tensor(const TensorRef& a, const TensorRef& b) {
  return same_bytes(a.bytes(), b.bytes());
}

void add_not_a_copy(const std::string& name, const TensorRef* ref, FindingSet& findings) {
  Finding f;
  f.id = "A9";
  f.slug = "not-a-copy";
  f.severity = Severity::kWarning;
  f.message = fmt::format(
      "{} differs from the reference, while most of the two checkpoints is equal "
      "byte for byte",
      quote_name(name));
  f.remedy = "take it from the reference";
  f.instances = {name};
  if (ref != nullptr) {
    f.tensor = name;
    f.file = ref->file->path().filename().string();
    f.offset = ref->info->begin;
  } else {
    f.file = name;
  }
  findings.add(std::move(f));
}

// Of a file beside the shards; both without it are alike.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  const bool in_a = std::filesystem::is_regular_file(a, error);
  if (in_a != std::filesystem::is_regular_file(b, error)) return false;
  if (!in_a) return true;
  const auto x = MappedFile::open(a);
  const auto y = MappedFile::open(b);
  return x && y && same_bytes(x->bytes(), y->bytes());
}

}  // namespace

std::vector<Finding> compare_copies(const Checkpoint& checkpoint, const Checkpoint& reference) {
  // Copies have the same tensors in the same form; a quantized file and its source never do.
  if (checkpoint.tensors().size() != reference.tensors().size()) return {};
  int64_t n_equal = 0;
  std::vector<const TensorRef*> different;
  for (const auto& [name, ref] : checkpoint.tensors()) {
    const TensorRef other = reference.tensor(name);
    if (!other || other.info->dtype != ref.info->dtype || other.info->shape != ref.info->shape)
      return {};
    if (same_tensor(ref, other))
      ++n_equal;
    else
      different.push_back(&ref);
  }
  FindingSet findings(checkpoint.allowed());
  if (n_equal <= static_cast<int64_t>(different.size())) return {};
  for (const TensorRef* ref : different) add_not_a_copy(ref->info->name, ref, findings);
  for (const char* name : {"config.json", "generation_config.json", "hf_quant_config.json",
                           "model.safetensors.index.json"})
    if (!same_file(checkpoint.root() / name, reference.root() / name))
      add_not_a_copy(name, nullptr, findings);
  return findings.take();
}

}  // namespace sextant
