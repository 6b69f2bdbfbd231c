// Checkpoint::open: files, shards, index against headers, records, findings.
#include "checkpoint/directory.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "checkpoint/checks.h"
#include "checkpoint/config.h"
#include "checkpoint/dialects/dialect.h"
#include "checkpoint/resolve.h"
#include "checkpoint/source.h"
#include "io/quote.h"

namespace sextant {

struct Checkpoint::Impl {
  std::vector<Allowance> allowed;
  CheckpointFiles files;
  std::optional<JsonValue> config;
  std::optional<JsonValue> generation_config;
  std::vector<std::unique_ptr<SafetensorsFile>> shards;
  TensorMap tensors;
  Resolved resolved;
  std::string dialect;
  std::vector<PatternReport> patterns;
  std::vector<Finding> findings;
};

namespace {

Result<std::optional<JsonValue>> read_optional(const std::optional<std::filesystem::path>& path) {
  if (!path) return std::nullopt;
  SX_ASSIGN(JsonValue value, read_json(*path));
  if (!value.is_object())
    return fail_at(Where{path->string(), {}, {}, {}}, Code::kInput,
                   "{}: expected an object, found {}", quote_name(path->string(), 400),
                   value.kind_name());
  return std::optional<JsonValue>(std::move(value));
}

// Every tensor by name; one that two shards have is an error, and the first is kept.
TensorMap merge_shards(const std::vector<std::unique_ptr<SafetensorsFile>>& shards,
                       FindingSet& findings) {
  std::vector<TensorMap::Entry> entries;
  size_t n = 0;
  for (const auto& shard : shards) n += shard->tensors().size();
  entries.reserve(n);
  for (const auto& shard : shards)
    for (const TensorInfo& info : shard->tensors())
      entries.emplace_back(info.name, TensorRef{shard.get(), &info, nullptr});
  std::vector<TensorMap::Entry> repeated;
  TensorMap tensors(std::move(entries), repeated);
  for (const auto& [name, ref] : repeated)
    findings.add(finding_at(
        "C15", "duplicate-tensor", Severity::kError, ref,
        fmt::format("{} is in two shards, {} and {}", quote_name(name),
                    quote_name(tensors.find(name)->second.file->path().filename().string()),
                    quote_name(ref.file->path().filename().string())),
        "remove the copy that does not belong, or fetch the checkpoint again"));
  return tensors;
}

// The headers win; what the index says otherwise is reported (nvfp4.md 2.6 and C18).
void check_index(const CheckpointFiles& files, const TensorMap& tensors, FindingSet& findings) {
  if (files.index_name.empty()) return;
  std::set<std::string_view> named;
  for (const auto& [name, shard] : files.weight_map) {
    named.insert(name);
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      Finding f = finding_at("C18", "index-absent-tensor", Severity::kError, {},
                             fmt::format("{} lists {} in {}, but no shard holds it",
                                         files.index_name, quote_name(name), quote_name(shard)),
                             "fetch or export the checkpoint again");
      f.tensor = name;
      f.file = files.index_name;
      findings.add(std::move(f));
      continue;
    }
    const std::filesystem::path expected = files.root / shard;
    if (it->second.file->path() == expected) continue;
    Finding f = finding_at(
        "C18", "index-wrong-shard", Severity::kError, it->second,
        fmt::format("{} says that {} is in {}, but it is in {}: were shards renamed or mixed up?",
                    files.index_name, quote_name(name), quote_name(shard),
                    quote_name(it->second.file->path().filename().string())),
        "fetch the checkpoint again, or write the index anew from the shards' headers");
    f.expected = shard;
    findings.add(std::move(f));
  }
  int64_t total = 0;
  for (const auto& [name, ref] : tensors) {
    total += ref.info->n_bytes();
    if (named.count(name) != 0) continue;
    findings.add(
        finding_at("C18", "index-lacks-tensor", Severity::kWarning, ref,
                   fmt::format("{} does not list {}, which {} holds: it is read", files.index_name,
                               quote_name(name), quote_name(ref.file->path().filename().string())),
                   "write the index anew from the shards' headers"));
  }
  if (files.total_size && *files.total_size != total) {
    Finding f = finding_at("F1", "total-size", Severity::kWarning, {},
                           fmt::format("{} says that the tensors have {} bytes, found {}",
                                       files.index_name, *files.total_size, total),
                           "write the index anew from the shards' headers");
    f.file = files.index_name;
    f.value = static_cast<double>(*files.total_size);
    f.expected = fmt::format("{}", total);
    findings.add(std::move(f));
  }
}

// Named after the quantized linears; the config's word counts only for FP8, which all dialects
// store alike.
std::string name_dialect(const Resolved& resolved, const QuantConfig& quant) {
  std::set<Dialect> found = resolved.dialects;
  found.erase(Dialect::kPlain);
  const bool modelopt = found.count(Dialect::kModelOpt) != 0;
  const bool packed = found.count(Dialect::kCompressedTensors) != 0;
  if (modelopt && packed) return "mixed";
  if (modelopt) return "modelopt";
  if (packed) return "compressed-tensors";
  if (found.count(Dialect::kDeepSeek) != 0) return "deepseek";
  if (found.empty()) return "plain";
  if (quant.style == QuantConfig::Style::kModelOpt) return "modelopt";
  if (quant.style == QuantConfig::Style::kCompressedTensors) return "compressed-tensors";
  if (found.size() > 1) return "mixed";
  return *found.begin() == Dialect::kMxfp4 ? "mxfp4" : "fp8";
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& path,
                                                     const CheckpointOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->allowed = options.allow;
  FindingSet findings(impl->allowed);
  SX_ASSIGN(impl->files, locate_checkpoint(path, findings));
  SX_ASSIGN(impl->config, read_optional(impl->files.config));
  SX_ASSIGN(impl->generation_config, read_optional(impl->files.generation_config));
  SX_ASSIGN(const std::optional<JsonValue> sidecar, read_optional(impl->files.sidecar));
  for (const std::filesystem::path& shard : impl->files.shards) {
    SX_ASSIGN(SafetensorsFile file, SafetensorsFile::open(shard, options.limits));
    impl->shards.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  }
  const JsonValue* config = impl->config ? &*impl->config : nullptr;
  impl->tensors = merge_shards(impl->shards, findings);
  check_index(impl->files, impl->tensors, findings);
  const QuantConfig quant = read_quant_config(config, sidecar ? &*sidecar : nullptr, findings);
  impl->resolved = resolve_tensors(impl->tensors, quant, config, findings);
  impl->patterns = check_against_config(impl->tensors, quant, config, impl->resolved, findings);
  impl->dialect = name_dialect(impl->resolved, quant);
  impl->findings = findings.take();
  return std::unique_ptr<Checkpoint>(new Checkpoint(std::move(impl)));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() = default;

const std::filesystem::path& Checkpoint::root() const { return impl_->files.root; }
const JsonValue* Checkpoint::config() const { return impl_->config ? &*impl_->config : nullptr; }
const JsonValue* Checkpoint::generation_config() const {
  return impl_->generation_config ? &*impl_->generation_config : nullptr;
}
std::string_view Checkpoint::dialect() const { return impl_->dialect; }
const std::vector<std::unique_ptr<SafetensorsFile>>& Checkpoint::files() const {
  return impl_->shards;
}
const TensorMap& Checkpoint::tensors() const { return impl_->tensors; }
TensorRef Checkpoint::tensor(std::string_view name) const {
  const auto it = impl_->tensors.find(name);
  return it == impl_->tensors.end() ? TensorRef{} : it->second;
}
const std::map<std::string, LinearRecord, std::less<>>& Checkpoint::linears() const {
  return impl_->resolved.linears;
}
const LinearRecord* Checkpoint::linear(std::string_view module) const {
  auto it = impl_->resolved.linears.find(module);
  if (it == impl_->resolved.linears.end())
    it = impl_->resolved.linears.find(fmt::format("{}.linear", module));
  return it == impl_->resolved.linears.end() ? nullptr : &it->second;
}
std::vector<std::string_view> Checkpoint::tensors_of(const LinearRecord& linear) const {
  std::vector<std::string_view> names;
  for (const TensorInfo* info : linear.tensors)
    if (info != nullptr) names.emplace_back(info->name);
  return names;
}
const std::vector<TensorRef>& Checkpoint::slices_of(const LinearRecord& linear) const {
  static const std::vector<TensorRef> none;
  const auto it = impl_->resolved.slices_of.find(linear.module);
  return it == impl_->resolved.slices_of.end() ? none : it->second;
}
const std::map<std::string, std::string, std::less<>>& Checkpoint::harmless_tensors() const {
  return impl_->resolved.harmless;
}
const std::map<std::string, KvScales, std::less<>>& Checkpoint::kv_scales() const {
  return impl_->resolved.kv_scales;
}
const std::vector<Finding>& Checkpoint::findings() const { return impl_->findings; }
const std::vector<PatternReport>& Checkpoint::patterns() const { return impl_->patterns; }
const std::vector<Allowance>& Checkpoint::allowed() const { return impl_->allowed; }

}  // namespace sextant
