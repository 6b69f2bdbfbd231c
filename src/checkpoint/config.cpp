// Reading of quantization configs. Every field is optional and may have the wrong type: those are
// findings, never crashes, and the stored tensors still decide.
#include "checkpoint/config.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "io/quote.h"

namespace sextant {
namespace {

constexpr int64_t kMaxBlock = 1 << 20;  // extent of a block or group that is still believed

struct Algorithm {
  std::string_view name;
  std::optional<Scheme> scheme;
  int64_t group_size;
  int64_t block;
  Activations activations;
};
// ModelOpt's quant_algo values that this program reads (nvfp4.md 2.2).
constexpr std::array kAlgorithms = {
    Algorithm{"NVFP4", Scheme::kNvfp4, 16, 0, Activations::kStatic},
    Algorithm{"W4A16_NVFP4", Scheme::kNvfp4, 16, 0, Activations::kNone},
    Algorithm{"NVFP4_W4A16", Scheme::kNvfp4, 16, 0, Activations::kNone},
    Algorithm{"NVFP4_AWQ", Scheme::kNvfp4, 16, 0, Activations::kStatic},
    Algorithm{"NVFP4_MLP_WEIGHT_ONLY", Scheme::kNvfp4, 32, 0, Activations::kNone},
    Algorithm{"W4A8_NVFP4_FP8", Scheme::kNvfp4, 32, 0, Activations::kStatic},
    Algorithm{"FP8", Scheme::kFp8Tensor, 0, 0, Activations::kStatic},
    Algorithm{"FP8_PER_CHANNEL_PER_TOKEN", Scheme::kFp8Channel, 0, 0, Activations::kDynamic},
    Algorithm{"FP8_PB_WO", Scheme::kFp8Block, 0, 128, Activations::kNone},
    Algorithm{"W4A8_MXFP4_FP8", Scheme::kMxfp4, 32, 0, Activations::kUnknown},
    Algorithm{"W4A16_MXFP4", Scheme::kMxfp4, 32, 0, Activations::kNone},
    Algorithm{"MXFP4", Scheme::kMxfp4, 32, 0, Activations::kUnknown},
};

std::string known_algorithms() {
  std::string text;
  for (const Algorithm& a : kAlgorithms) text += fmt::format("{}, ", a.name);
  return text + "MIXED_PRECISION";
}

void add_malformed(FindingSet& findings, std::string_view where, std::string_view expected,
                   std::string_view found) {
  Finding f;
  f.id = "P7";
  f.slug = "malformed-config";
  f.severity = Severity::kError;
  f.message = fmt::format("{}: expected {}, found {}", where, expected, found);
  f.remedy = "correct the field, or take the file from the checkpoint's source again";
  f.instances = {std::string(where)};
  f.expected = expected;
  findings.add(std::move(f));
}

void add_unknown(FindingSet& findings, std::string_view where, std::string_view value,
                 std::string_view tensor) {
  Finding f;
  f.id = "P3";
  f.slug = "unknown-algorithm";
  f.severity = Severity::kError;
  f.message = fmt::format("{}: the quantization {} is not known", where, quote_name(value));
  f.remedy = fmt::format("known are {}; a newer version may read it", known_algorithms());
  f.tensor = tensor;
  f.instances = {std::string(where)};
  f.expected = known_algorithms();
  findings.add(std::move(f));
}

const std::string* string_at(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

std::optional<int64_t> extent_at(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || !value->is_int()) return std::nullopt;
  const int64_t n = value->as_int();
  return n > 0 && n <= kMaxBlock ? std::optional(n) : std::nullopt;
}

// A list of strings; anything else in its place is a finding.
std::vector<std::string> strings_at(const JsonValue& object, std::string_view key,
                                    std::string_view where, FindingSet& findings) {
  std::vector<std::string> strings;
  const JsonValue* list = object.find(key);
  if (list == nullptr || list->is_null()) return strings;
  if (!list->is_array()) {
    add_malformed(findings, where, "a list of module patterns", list->kind_name());
    return strings;
  }
  for (const JsonValue& item : list->array()) {
    if (item.is_string())
      strings.push_back(item.as_string());
    else
      add_malformed(findings, where, "a list of module patterns", item.kind_name());
  }
  return strings;
}

// The scheme of one algorithm name; a finding and no scheme where it is not known.
DeclaredScheme read_algorithm(const std::string& name, std::string_view where,
                              std::string_view tensor, FindingSet& findings) {
  const auto it = std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                               [&](const Algorithm& a) { return a.name == name; });
  if (it == kAlgorithms.end()) {
    add_unknown(findings, where, name, tensor);
    return {};
  }
  return {it->scheme, it->group_size, it->block, it->block, it->activations};
}

// The weights argument of a compressed-tensors group: recognized by type, bits and strategy, not by
// `format` (nvfp4.md 2.1). ModelOpt's look-alike lacks `strategy`.
void read_weights_args(const JsonValue& weights, DeclaredScheme& declared) {
  const JsonValue* bits_value = weights.find("num_bits");
  const int64_t bits = bits_value != nullptr && bits_value->is_int() ? bits_value->as_int() : 0;
  const std::string* type = string_at(weights, "type");
  const std::string* strategy = string_at(weights, "strategy");
  declared.group_size = extent_at(weights, "group_size").value_or(0);
  if (type == nullptr || *type != "float" || strategy == nullptr) return;
  if (bits == 4 && (*strategy == "tensor_group" || *strategy == "group"))
    declared.scheme = declared.group_size == 32 ? Scheme::kMxfp4 : Scheme::kNvfp4;
  if (bits == 8 && *strategy == "tensor") declared.scheme = Scheme::kFp8Tensor;
  if (bits == 8 && *strategy == "channel") declared.scheme = Scheme::kFp8Channel;
  if (bits == 8 && *strategy == "block") {
    declared.scheme = Scheme::kFp8Block;
    const JsonValue* block = weights.find("block_structure");
    if (block != nullptr && block->is_array() && block->array().size() == 2 &&
        block->array()[0].is_int() && block->array()[1].is_int() &&
        block->array()[0].as_int() > 0 && block->array()[0].as_int() <= kMaxBlock &&
        block->array()[1].as_int() > 0 && block->array()[1].as_int() <= kMaxBlock) {
      declared.block_n = block->array()[0].as_int();
      declared.block_k = block->array()[1].as_int();
    }
  }
}

Activations read_activations_args(const JsonValue* args) {
  if (args == nullptr) return Activations::kUnknown;
  if (args->is_null()) return Activations::kNone;
  // "local": block scales on the fly under a stored global scale.
  const JsonValue* dynamic = args->find("dynamic");
  const bool is_dynamic = dynamic != nullptr && dynamic->is_bool() && dynamic->as_bool();
  return is_dynamic ? Activations::kDynamic : Activations::kStatic;
}

void read_groups(const JsonValue& quant, std::string_view source, QuantConfig& out,
                 FindingSet& findings) {
  const JsonValue* groups = quant.find("config_groups");
  if (groups == nullptr || groups->is_null()) return;
  if (!groups->is_object()) {
    add_malformed(findings, fmt::format("{} config_groups", source), "an object",
                  groups->kind_name());
    return;
  }
  for (const auto& [name, group] : groups->members()) {
    const std::string where = fmt::format("{} config_groups {}", source, quote_name(name));
    if (!group.is_object()) {
      add_malformed(findings, where, "an object", group.kind_name());
      continue;
    }
    QuantGroup g;
    g.name = name;
    g.targets = strings_at(group, "targets", where + " targets", findings);
    if (const JsonValue* weights = group.find("weights");
        weights != nullptr && weights->is_object())
      read_weights_args(*weights, g.declared);
    g.declared.activations = read_activations_args(group.find("input_activations"));
    out.groups.push_back(std::move(g));
  }
}

void read_modelopt(const JsonValue& quant, std::string_view source, std::string_view exclude_key,
                   QuantConfig& out, FindingSet& findings) {
  out.style = QuantConfig::Style::kModelOpt;
  out.source = source;
  out.exclude_source = fmt::format("{} {}", source.substr(0, source.find(' ')), exclude_key);
  out.exclude = strings_at(quant, exclude_key, out.exclude_source, findings);
  const std::string* algorithm = string_at(quant, "quant_algo");
  if (algorithm != nullptr) out.algorithm = *algorithm;

  if (const JsonValue* layers = quant.find("quantized_layers");
      layers != nullptr && layers->is_object()) {
    for (const auto& [layer, entry] : layers->members()) {
      const std::string* name = string_at(entry, "quant_algo");
      const std::string where = fmt::format("{} quantized_layers {}", source, quote_name(layer));
      if (name == nullptr) {
        add_malformed(findings, where, "a quant_algo", "none");
        continue;
      }
      DeclaredScheme declared = read_algorithm(*name, where, layer, findings);
      if (const auto size = extent_at(entry, "group_size")) declared.group_size = *size;
      out.layers[layer] = declared;
    }
  }
  if (out.algorithm == "MIXED_PRECISION") {
    out.mixed = true;
    return;
  }
  if (algorithm != nullptr && *algorithm != "NONE")
    out.whole = read_algorithm(*algorithm, fmt::format("{} quant_algo", source), "", findings);
  if (const auto size = extent_at(quant, "group_size")) out.whole.group_size = *size;
  // ModelOpt's config_groups look like those of compressed-tensors; what they add is whether
  // activations are quantized at all.
  QuantConfig groups;
  read_groups(quant, source, groups, findings);
  for (const QuantGroup& group : groups.groups)
    if (group.declared.activations == Activations::kNone)
      out.whole.activations = Activations::kNone;
}

void read_compressed_tensors(const JsonValue& quant, std::string_view source, QuantConfig& out,
                             FindingSet& findings) {
  out.style = QuantConfig::Style::kCompressedTensors;
  out.source = source;
  out.exclude_source = "config.json ignore";
  out.exclude = strings_at(quant, "ignore", out.exclude_source, findings);
  if (const std::string* format = string_at(quant, "format")) out.algorithm = *format;
  read_groups(quant, source, out, findings);
}

void read_list_style(const JsonValue& quant, std::string_view source, QuantConfig& out,
                     FindingSet& findings) {
  out.source = source;
  out.exclude_source = "config.json modules_to_not_convert";
  out.exclude = strings_at(quant, "modules_to_not_convert", out.exclude_source, findings);
  if (out.style == QuantConfig::Style::kMxfp4) {
    out.whole = {Scheme::kMxfp4, 32, 0, 0, Activations::kNone};
    return;
  }
  const std::string* activation = string_at(quant, "activation_scheme");
  const bool is_static = activation != nullptr && *activation == "static";
  out.whole.activations = is_static ? Activations::kStatic : Activations::kDynamic;
  const JsonValue* block = quant.find("weight_block_size");
  if (block == nullptr || block->is_null()) return;
  if (!block->is_array() || block->array().size() != 2 || !block->array()[0].is_int() ||
      !block->array()[1].is_int() || block->array()[0].as_int() < 1 ||
      block->array()[1].as_int() < 1 || block->array()[0].as_int() > kMaxBlock ||
      block->array()[1].as_int() > kMaxBlock) {
    add_malformed(findings, fmt::format("{} weight_block_size", source),
                  "two positive whole numbers", "something else");
    return;
  }
  out.whole.scheme = Scheme::kFp8Block;
  out.whole.block_n = block->array()[0].as_int();
  out.whole.block_k = block->array()[1].as_int();
}

// quantization_config of config.json, whichever producer wrote it.
QuantConfig read_inline(const JsonValue& quant, FindingSet& findings) {
  constexpr std::string_view kSource = "config.json quantization_config";
  QuantConfig out;
  if (!quant.is_object()) {
    add_malformed(findings, kSource, "an object", quant.kind_name());
    return out;
  }
  const std::string* method_value = string_at(quant, "quant_method");
  const std::string method = method_value != nullptr ? *method_value : "";
  if (method == "compressed-tensors" || method == "compressed_tensors" ||
      (method.empty() && quant.find("quant_algo") == nullptr &&
       quant.find("config_groups") != nullptr)) {
    read_compressed_tensors(quant, kSource, out, findings);
  } else if (method.starts_with("modelopt") ||
             (method.empty() && quant.find("quant_algo") != nullptr)) {
    const bool old_name =
        quant.find("ignore") == nullptr && quant.find("exclude_modules") != nullptr;
    read_modelopt(quant, kSource, old_name ? "exclude_modules" : "ignore", out, findings);
  } else if (method == "fp8" || method == "mxfp4") {
    out.style = method == "fp8" ? QuantConfig::Style::kFp8 : QuantConfig::Style::kMxfp4;
    out.algorithm = method;
    read_list_style(quant, kSource, out, findings);
  } else {
    add_unknown(findings, fmt::format("{} quant_method", kSource), method, "");
  }
  return out;
}

std::string list_text(const std::vector<std::string>& list) {
  std::string text = "[";
  constexpr size_t kMaxShown = 8;
  for (size_t i = 0; i < std::min(list.size(), kMaxShown); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", quote_name(list[i]));
  if (list.size() > kMaxShown) text += fmt::format(", and {} more", list.size() - kMaxShown);
  return text + "]";
}

// Case C047: two sources that say different things; the difference and which one is used.
void compare_sources(const QuantConfig& used, const QuantConfig& other, FindingSet& findings) {
  std::vector<std::string> differences;
  if (used.algorithm != other.algorithm)
    differences.push_back(fmt::format("quant_algo is {} there and {} here",
                                      quote_name(other.algorithm), quote_name(used.algorithm)));
  if (used.whole.group_size != 0 && other.whole.group_size != 0 &&
      used.whole.group_size != other.whole.group_size)
    differences.push_back(fmt::format("group_size is {} there and {} here", other.whole.group_size,
                                      used.whole.group_size));
  if (std::set<std::string>(used.exclude.begin(), used.exclude.end()) !=
      std::set<std::string>(other.exclude.begin(), other.exclude.end()))
    differences.push_back(fmt::format("{} = {}, {} = {}", other.exclude_source,
                                      list_text(other.exclude), used.exclude_source,
                                      list_text(used.exclude)));
  for (const auto& [layer, declared] : other.layers) {
    const auto it = used.layers.find(layer);
    if (it != used.layers.end() && it->second.scheme == declared.scheme) continue;
    differences.push_back(fmt::format("quantized_layers differ at {}", quote_name(layer)));
    break;
  }
  if (differences.empty()) return;
  Finding f;
  f.id = "P2";
  f.slug = "configs-differ";
  f.severity = Severity::kWarning;
  f.message = fmt::format(
      "hf_quant_config.json and config.json differ: {}; config.json is used for reports, and the "
      "stored tensors decide how each layer runs",
      fmt::join(differences, "; "));
  f.remedy = "make the two files agree, or remove hf_quant_config.json";
  f.file = "hf_quant_config.json";
  f.count = static_cast<int64_t>(differences.size());
  findings.add(std::move(f));
}

}  // namespace

PatternStyle QuantConfig::exclude_style() const {
  switch (style) {
    case Style::kCompressedTensors: return PatternStyle::kExact;
    case Style::kFp8:
    case Style::kMxfp4: return PatternStyle::kPrefix;
    default: return PatternStyle::kShell;
  }
}

QuantConfig read_quant_config(const JsonValue* config, const JsonValue* sidecar,
                              FindingSet& findings) {
  const JsonValue* quant = find_model_field(config, "quantization_config");
  if (quant == nullptr && config != nullptr) quant = config->find("compression_config");
  if (quant != nullptr && quant->is_null()) quant = nullptr;

  QuantConfig beside;
  if (sidecar != nullptr) {
    const JsonValue* inner = sidecar->find("quantization");
    if (inner != nullptr && inner->is_object())
      read_modelopt(*inner, "hf_quant_config.json quantization", "exclude_modules", beside,
                    findings);
    else
      add_malformed(findings, "hf_quant_config.json", "an object \"quantization\"",
                    inner == nullptr ? "none" : inner->kind_name());
  }
  if (quant == nullptr) return beside;
  QuantConfig used = read_inline(*quant, findings);
  if (used.style == QuantConfig::Style::kModelOpt && beside.style == QuantConfig::Style::kModelOpt)
    compare_sources(used, beside, findings);
  return used.style == QuantConfig::Style::kNone ? beside : used;
}

const JsonValue* find_model_field(const JsonValue* config, std::string_view key) {
  if (config == nullptr) return nullptr;
  if (const JsonValue* value = config->find(key)) return value;
  const JsonValue* text = config->find("text_config");
  return text != nullptr ? text->find(key) : nullptr;
}

std::optional<int64_t> model_int(const JsonValue* config, std::string_view key) {
  const JsonValue* value = find_model_field(config, key);
  if (value == nullptr || !value->is_int()) return std::nullopt;
  return value->as_int();
}

bool model_flag(const JsonValue* config, std::string_view key) {
  const JsonValue* value = find_model_field(config, key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

}  // namespace sextant
