#include "doctor/engine_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "checkpoint/finding.h"
#include "quant/convert.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

constexpr int kE4m3Nan = 0x7F;
constexpr float kMarlinSmallest = 0x1p-6F;  // 2 after the multiplication by 2^7
constexpr float kE4m3Max = 448.0F;

std::string_view suffix_dialect(std::string_view tensor) {
  for (const std::string_view part : {"weight_global_scale", "input_global_scale", "weight_packed"})
    if (tensor.ends_with(part)) return "compressed-tensors";
  for (const std::string_view part : {"weight_scale_2", "input_scale"})
    if (tensor.ends_with(part)) return "modelopt";
  return "";
}

// Values of a scalar, or of the parts of a fused linear; empty for anything larger.
std::vector<float> scalar_values(const TensorRef& ref) {
  constexpr int64_t kMostParts = 16;
  const int64_t n = ref ? ref.info->n_elements() : 0;
  std::vector<float> values(static_cast<size_t>(n >= 1 && n <= kMostParts ? n : 0));
  if (!values.empty() && !stored_to_f32(ref.info->dtype, ref.bytes().data(), n, values.data()))
    values.clear();
  return values;
}

// What the functions below share.
struct FactSource {
  const EngineLine& line;
  const EngineTable& table;
  std::string_view family;
  const Checkpoint& checkpoint;
  const Diagnosis& diagnosis;
  std::vector<EngineFact> facts;

  void add(const LinearRecord& record, std::string tensor, std::optional<double> value = {},
           double badness = 0) {
    facts.push_back({std::move(tensor), engine_dialect(checkpoint, record),
                     in_experts(record.module), value, badness, 1});
  }
  void whole(int64_t count = 1) { facts.push_back({"", "", false, {}, 0, count}); }
  std::vector<const LinearRecord*> linears(Scheme scheme) const {
    std::vector<const LinearRecord*> found;
    for (const auto& [module, record] : checkpoint.linears())
      if (record.scheme == scheme) found.push_back(&record);
    return found;
  }
  // A tensor of the linear whose name `is` accepts, empty without one.
  std::string stored(const LinearRecord& record, bool (*is)(std::string_view)) const {
    for (const std::string_view name : checkpoint.tensors_of(record))
      if (is(name)) return std::string(name);
    return {};
  }
  const Finding* finding(std::string_view slug) const {
    for (const auto* list : {&diagnosis.findings, &checkpoint.findings()})
      for (const Finding& found : *list)
        if (found.slug == slug) return &found;
    return nullptr;
  }
  // One fact an instance; the first stands for those that the finding does not name.
  void from_finding(std::string_view slug) {
    const Finding* found = finding(slug);
    if (found == nullptr) return;
    std::vector<std::string> names = found->instances;
    if (names.empty()) names.push_back(found->tensor);
    int64_t rest = found->count;
    const size_t first = facts.size();
    for (const std::string& name : names) {
      const LinearRecord* record = checkpoint.linear(module_parent(name));
      const std::string_view dialect =
          record != nullptr ? engine_dialect(checkpoint, *record) : suffix_dialect(name);
      facts.push_back({name, dialect, in_experts(name), {}, 0, 1});
      --rest;
    }
    facts[first].count += std::max<int64_t>(rest, 0);
  }
};

void find_scale_bytes(FactSource& source, bool nan) {
  for (const LinearSummary& linear : source.diagnosis.linears) {
    if (linear.scheme != Scheme::kNvfp4 || !linear.statistics) continue;
    const LinearRecord* record = source.checkpoint.linear(linear.module);
    if (record == nullptr || !record->scales) continue;
    const CodeStatistics statistics = linear.statistics.unpack();
    int64_t n = 0;
    for (int byte = 0; byte < 256; ++byte)
      if (((byte & 0x7F) == kE4m3Nan) == nan && (nan || byte >= 0x80))
        n += statistics.scale_bytes[static_cast<size_t>(byte)];
    if (n > 0) source.add(*record, record->scales.info->name, static_cast<double>(n));
  }
  // Without statistics (quick) the scan's finding stands in.
  if (source.facts.empty()) source.from_finding(nan ? "nan-block-scale" : "negative-block-scale");
}

// The layer whose block scales an engine keeps in one tensor: the module, or its fused group.
std::string fused_layer_of(const FactSource& source, const LinearSummary& linear) {
  const std::string parent(module_parent(linear.module));
  for (const EngineLine& line : source.table.lines) {
    if (line.kind != EngineLineKind::kFused || !source.table.concerns(line, source.family))
      continue;
    if (!line.place.empty() && (line.place == "experts") != in_experts(linear.module)) continue;
    const std::string_view last = module_last(linear.module);
    if (std::find(line.parts.begin(), line.parts.end(), last) != line.parts.end())
      return parent + "|" + line.parts[0];
  }
  return linear.module;
}

void find_small_scales(FactSource& source) {
  std::map<std::string, int> max_byte;
  const auto counts = [](const LinearSummary& linear) {
    return linear.scheme == Scheme::kNvfp4 && linear.statistics;
  };
  for (const LinearSummary& linear : source.diagnosis.linears) {
    if (!counts(linear)) continue;
    int& max = max_byte[fused_layer_of(source, linear)];
    max = std::max(max, max_scale_byte(linear.statistics.unpack()));
  }
  for (const LinearSummary& linear : source.diagnosis.linears) {
    if (!counts(linear)) continue;
    const CodeStatistics statistics = linear.statistics.unpack();
    const int64_t n =
        flushed_blocks(statistics, max_byte[fused_layer_of(source, linear)], source.line.rescale);
    const LinearRecord* record = source.checkpoint.linear(linear.module);
    if (n == 0 || record == nullptr || !record->scales) continue;
    const double share = static_cast<double>(n) / static_cast<double>(statistics.n_blocks);
    source.add(*record, record->scales.info->name, share, share);
  }
}

void find_scalars(FactSource& source, bool (*is)(std::string_view), bool zero) {
  for (const LinearRecord* record : source.linears(Scheme::kNvfp4)) {
    const std::string name = source.stored(*record, is);
    for (const float value : scalar_values(source.checkpoint.tensor(name))) {
      const bool hit = zero ? value == 0.0F : !std::isfinite(value) || value < 0.0F;
      if (!hit) continue;
      source.add(*record, name, value);
      break;
    }
  }
}

// Both kinds of absence: some linears lack an activation scale that belongs to them, or the whole
// file does without, on purpose.
void find_absent_input_scales(FactSource& source, bool weight_only) {
  const std::vector<const LinearRecord*> linears = source.linears(Scheme::kNvfp4);
  const bool lost = source.finding("missing-input-scale") != nullptr;
  int64_t n_with = 0;
  for (const LinearRecord* record : linears)
    n_with += source.stored(*record, is_input_scalar).empty() ? 0 : 1;
  if (weight_only) {
    if (!lost && n_with == 0 && !linears.empty())
      source.whole(static_cast<int64_t>(linears.size()));
    return;
  }
  if (!lost) return;
  for (const LinearRecord* record : linears) {
    if (!source.stored(*record, is_input_scalar).empty()) continue;
    const bool ct = engine_dialect(source.checkpoint, *record) == "compressed-tensors";
    source.add(*record, record->module + (ct ? ".input_global_scale" : ".input_scale"));
  }
}

// Engines go by the name; the diagnosis by the numbers.
void find_other_convention(FactSource& source, bool input) {
  const Convention& convention = source.diagnosis.convention;
  const std::string& found = input ? convention.input : convention.weight_global;
  if (!input) source.from_finding("mixed-conventions");
  if (found != "multiplier" && found != "divisor") return;
  for (const LinearRecord* record : source.linears(Scheme::kNvfp4)) {
    const std::string name = source.stored(*record, input ? is_input_scalar : is_weight_scalar);
    if (name.empty()) continue;
    const bool named_divisor = suffix_dialect(name) == "compressed-tensors";
    if (named_divisor == (found == "divisor")) continue;
    const std::vector<float> values = scalar_values(source.checkpoint.tensor(name));
    source.add(*record, name, values.empty() ? std::optional<double>() : values[0]);
  }
}

// The quantization config, where its method is the one asked for ("modelopt" is modelopt_fp4 too).
const JsonValue* config_of_method(const FactSource& source, std::string_view method) {
  const JsonValue* config = source.checkpoint.config();
  const JsonValue* quant = config == nullptr ? nullptr : config->find("quantization_config");
  const JsonValue* declared = quant == nullptr ? nullptr : quant->find("quant_method");
  const bool fits =
      declared != nullptr && declared->is_string() && declared->as_string().starts_with(method);
  return fits ? quant : nullptr;
}

// The config's method asks for parameters that the file's names do not fill.
void find_names_under(FactSource& source, std::string_view method, std::string_view dialect) {
  if (config_of_method(source, method) == nullptr) return;
  for (const LinearRecord* record : source.linears(Scheme::kNvfp4))
    if (engine_dialect(source.checkpoint, *record) == dialect)
      source.add(*record, record->weight.info->name);
}

// ModelOpt's groups look the same and are not meant.
void find_config_groups(FactSource& source) {
  const JsonValue* quant = config_of_method(source, "compressed-tensors");
  const JsonValue* groups = quant == nullptr ? nullptr : quant->find("config_groups");
  if (groups != nullptr && groups->is_object() && groups->members().size() > 1)
    source.facts.push_back({"", "", false, static_cast<double>(groups->members().size()), 0, 1});
}

void find_nvfp4_linears(FactSource& source) {
  for (const LinearRecord* record : source.linears(Scheme::kNvfp4)) {
    float largest = 0;
    for (const ScaleRange& range : record->ranges) largest = std::max(largest, range.stored);
    source.add(*record, record->weight.info->name, largest, largest);
  }
}

}  // namespace

bool is_weight_scalar(std::string_view tensor) {
  return tensor.ends_with("weight_scale_2") || tensor.ends_with("weight_global_scale");
}
bool is_input_scalar(std::string_view tensor) {
  return tensor.ends_with("input_scale") || tensor.ends_with("input_global_scale");
}

std::string_view module_parent(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : module.substr(0, dot);
}
std::string_view module_last(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}
bool in_experts(std::string_view name) { return name.find(".experts.") != std::string_view::npos; }

std::string_view engine_dialect(const Checkpoint& checkpoint, const LinearRecord& record) {
  for (const std::string_view name : checkpoint.tensors_of(record))
    if (const std::string_view dialect = suffix_dialect(name); !dialect.empty()) return dialect;
  return "";
}

int max_scale_byte(const CodeStatistics& statistics) {
  for (int byte = kE4m3Nan - 1; byte > 0; --byte)
    if (statistics.scale_bytes[static_cast<size_t>(byte)] > 0) return byte;
  return 0;
}

int64_t flushed_blocks(const CodeStatistics& statistics, int max_byte, bool rescale) {
  if (max_byte <= 0) return 0;
  float factor = 1.0F;
  const float max = e4m3_decode(static_cast<uint8_t>(max_byte));
  while (rescale && max * factor * 2.0F <= kE4m3Max) factor *= 2.0F;
  int64_t n = 0;
  for (int byte = 1; byte < kE4m3Nan; ++byte)
    if (e4m3_decode(static_cast<uint8_t>(byte)) * factor < kMarlinSmallest)
      n += statistics.scale_bytes[static_cast<size_t>(byte)];
  return n;
}

std::vector<EngineFact> engine_facts(const EngineLine& line, const EngineTable& table,
                                     std::string_view family, const Checkpoint& checkpoint,
                                     const Diagnosis& diagnosis) {
  FactSource source{line, table, family, checkpoint, diagnosis, {}};
  const std::string_view when = line.when;
  if (when == "always") source.whole();
  if (when == "nvfp4-linear") find_nvfp4_linears(source);
  if (when == "several-config-groups") find_config_groups(source);
  if (when == "nan-scale" || when == "negative-scale") find_scale_bytes(source, when[1] == 'a');
  if (when == "small-scales") find_small_scales(source);
  if (when == "zero-input-scale") find_scalars(source, is_input_scalar, true);
  if (when == "bad-input-scale") find_scalars(source, is_input_scalar, false);
  if (when == "zero-weight-scale") find_scalars(source, is_weight_scalar, true);
  if (when == "bad-weight-scale") find_scalars(source, is_weight_scalar, false);
  if (when == "missing-input-scale") find_absent_input_scales(source, false);
  if (when == "weight-only") find_absent_input_scales(source, true);
  if (when == "weight-other-convention") find_other_convention(source, false);
  if (when == "input-other-convention") find_other_convention(source, true);
  if (when == "modelopt-names-under-ct") find_names_under(source, "compressed-tensors", "modelopt");
  if (when == "ct-names-under-modelopt") find_names_under(source, "modelopt", "compressed-tensors");
  if (when == "missing-weight-scale")
    for (const std::string_view slug : {"missing-global-scale", "missing-block-scale"})
      source.from_finding(slug);
  for (const std::string_view slug :
       {"excluded-but-quantized", "declared-quantized-stored-plain", "index-lacks-tensor"})
    if (when == slug) source.from_finding(slug);
  if (when == "pre-quant-scale")
    for (const auto& [module, record] : checkpoint.linears())
      if (record.pre_quant_scale) source.add(record, record.pre_quant_scale.info->name);
  if (when == "k-not-multiple")
    for (const LinearRecord* record : source.linears(Scheme::kNvfp4))
      if (record->k % line.of != 0)
        source.add(*record, record->weight.info->name, static_cast<double>(record->k));
  if (when == "fp8-rows-not-multiple")
    for (const LinearRecord* record : source.linears(Scheme::kFp8Block))
      if (record->n % line.of != 0)
        source.add(*record, record->weight.info->name, static_cast<double>(record->n));
  return std::move(source.facts);
}

}  // namespace sextant
