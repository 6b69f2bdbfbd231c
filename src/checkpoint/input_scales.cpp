// Implements input_scales.h.
#include "checkpoint/input_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "io/ordered_json.h"
#include "io/quote.h"
#include "io/write_file.h"

namespace sextant {
namespace {

constexpr std::string_view kInputScalesFormat = "sextant-input-scales";
constexpr int64_t kInputScalesVersion = 1;
constexpr std::array<std::string_view, 4> kSourceNames = {"measured", "stored", "peer-max", "none"};

Json entry_json(const InputScaleEntry& entry) {
  Json json = {{"g", or_null(entry.g)}, {"source", scale_source_name(entry.source)}};
  json["measured"] = nullptr;
  json["stored"] = nullptr;
  if (const auto& m = entry.measured)
    json["measured"] = {
        {"rows", m->n_rows},
        {"amax", m->amax},
        {"rms", m->rms},
        {"percentiles", {{"99", m->p99}, {"99.9", m->p99_9}, {"99.99", m->p99_99}}}};
  if (entry.stored) json["stored"] = {{"g", entry.stored->g}, {"amax", entry.stored->amax}};
  return json;
}

// Reads one file; every message begins with its name and where in it something is wrong.
class InputScalesReader {
 public:
  InputScalesReader(const std::filesystem::path& path, const JsonValue& root)
      : path_(path.string()), root_(root) {}

  Result<InputScales> read() {
    SX_TRY(check_format());
    SX_TRY(read_head());
    SX_ASSIGN(const JsonValue* modules, member(root_, "", "modules", &JsonValue::is_object));
    if (modules->members().empty()) return bad("modules", "expected a linear at least");
    for (const auto& [module, entry] : modules->members()) SX_TRY(read_entry(module, entry));
    SX_TRY(read_experts());
    return std::move(scales_);
  }

 private:
  tl::unexpected<Error> bad(const std::string& at, std::string_view what) const {
    return fail_at({path_, {}, at, {}}, Code::kInput, "{}: {}: {}; calibrate the model again",
                   quote_name(path_, 400), escape_text(at), what);
  }

  // A member of this kind.
  Result<const JsonValue*> member(const JsonValue& object, const std::string& at, const char* name,
                                  bool (JsonValue::*is_kind)() const) const {
    const JsonValue* found = object.find(name);
    const std::string place = at.empty() ? name : at + "." + name;
    if (found == nullptr) return bad(place, "it is missing");
    if (!(found->*is_kind)()) return bad(place, fmt::format("found {}", found->kind_name()));
    return found;
  }

  Result<std::string> text(const JsonValue& object, const std::string& at, const char* name) const {
    SX_ASSIGN(const JsonValue* found, member(object, at, name, &JsonValue::is_string));
    return found->as_string();
  }

  Result<int64_t> count(const JsonValue& object, const std::string& at, const char* name,
                        int64_t least) const {
    SX_ASSIGN(const JsonValue* found, member(object, at, name, &JsonValue::is_int));
    if (found->as_int() < least)
      return bad(at + "." + name, fmt::format("{} is below {}", found->as_int(), least));
    return found->as_int();
  }

  Result<double> number(const JsonValue& object, const std::string& at, const char* name,
                        double least) const {
    SX_ASSIGN(const JsonValue* found, member(object, at, name, &JsonValue::is_number));
    const double value = found->as_double();
    if (!std::isfinite(value) || value < least)
      return bad(at + "." + name, fmt::format("{} is no number from {} on", value, least));
    return value;
  }

  Result<float> multiplier(const JsonValue& object, const std::string& at) const {
    SX_ASSIGN(const JsonValue* found, member(object, at, "g", &JsonValue::is_number));
    if (!is_usable_multiplier(found->as_double()))
      return bad(at + ".g",
                 fmt::format("{} is no multiplier: expected a positive normal float32 number",
                             found->as_double()));
    return static_cast<float>(found->as_double());
  }

  Result<ScaleSource> source(const JsonValue& object, const std::string& at) const {
    SX_ASSIGN(const std::string name, text(object, at, "source"));
    const auto* const found = std::find(kSourceNames.begin(), kSourceNames.end(), name);
    if (found == kSourceNames.end())
      return bad(at + ".source", fmt::format("{} is none of measured, stored, peer-max and none",
                                             quote_name(name)));
    return static_cast<ScaleSource>(found - kSourceNames.begin());
  }

  // The format first: nothing else of another one means what it seems to.
  Status check_format() const {
    const JsonValue* format = root_.find("format");
    if (format == nullptr || !format->is_string() || format->as_string() != kInputScalesFormat)
      return fail_at({path_, {}, "format", {}}, Code::kInput,
                     "{} is no file of input scales: expected an object with \"format\": \"{}\", "
                     "as sextant calibrate writes",
                     quote_name(path_, 400), kInputScalesFormat);
    SX_ASSIGN(const int64_t version, count(root_, "", "format_version", 0));
    if (version == kInputScalesVersion) return {};
    return fail_at({path_, {}, "format_version", {}}, Code::kInput,
                   "{} has format version {}; this version reads {}: calibrate the model again",
                   quote_name(path_, 400), version, kInputScalesVersion);
  }

  Status read_head() {
    SX_ASSIGN(scales_.version, text(root_, "", "version"));
    SX_ASSIGN(const JsonValue* model, member(root_, "", "model", &JsonValue::is_object));
    SX_ASSIGN(scales_.model, text(*model, "model", "name"));
    SX_ASSIGN(scales_.model_hash, text(*model, "model", "hash"));
    if (scales_.model_hash.empty()) return bad("model.hash", "it is empty");
    SX_ASSIGN(scales_.isa, text(root_, "", "isa"));
    SX_ASSIGN(const JsonValue* policies, member(root_, "", "policy", &JsonValue::is_array));
    for (const JsonValue& policy : policies->array()) {
      if (!policy.is_string()) return bad("policy", fmt::format("found {}", policy.kind_name()));
      scales_.policies.push_back(policy.as_string());
    }
    SX_ASSIGN(const JsonValue* from, member(root_, "", "text", &JsonValue::is_object));
    SX_ASSIGN(scales_.text.source, text(*from, "text", "source"));
    SX_ASSIGN(scales_.text.sha256, text(*from, "text", "sha256"));
    SX_ASSIGN(scales_.text.n_tokens, count(*from, "text", "tokens", 1));
    SX_ASSIGN(scales_.text.n_sequences, count(*from, "text", "sequences", 1));
    SX_ASSIGN(scales_.headroom, number(root_, "", "headroom", 1));
    return {};
  }

  // "measured" and "stored": null, or an object.
  Result<const JsonValue*> part(const JsonValue& entry, const std::string& at,
                                const char* name) const {
    const JsonValue* found = entry.find(name);
    if (found != nullptr && found->is_null()) return nullptr;
    return member(entry, at, name, &JsonValue::is_object);
  }

  Status read_entry(const std::string& module, const JsonValue& json) {
    const std::string at = "modules." + module;
    if (!json.is_object()) return bad(at, fmt::format("found {}", json.kind_name()));
    InputScaleEntry& entry = scales_.modules[module];
    SX_ASSIGN(entry.source, source(json, at));
    const JsonValue* g = json.find("g");
    if (entry.source == ScaleSource::kNone) {
      if (g == nullptr || !g->is_null()) return bad(at + ".g", "expected null without a source");
    } else {
      SX_ASSIGN(entry.g, multiplier(json, at));
    }
    SX_ASSIGN(const JsonValue* measured, part(json, at, "measured"));
    if (measured != nullptr) SX_TRY(read_measured(*measured, at + ".measured", entry));
    SX_ASSIGN(const JsonValue* stored, part(json, at, "stored"));
    if (stored != nullptr) {
      entry.stored.emplace();
      SX_ASSIGN(entry.stored->g, multiplier(*stored, at + ".stored"));
      SX_ASSIGN(entry.stored->amax, number(*stored, at + ".stored", "amax", 0));
    }
    const bool lacks = (entry.source == ScaleSource::kMeasured && !entry.measured) ||
                       (entry.source == ScaleSource::kStored && !entry.stored);
    if (lacks) return bad(at + ".source", "the numbers it names are not there");
    return {};
  }

  Status read_measured(const JsonValue& json, const std::string& at, InputScaleEntry& entry) {
    MeasuredInput& m = entry.measured.emplace();
    SX_ASSIGN(m.n_rows, count(json, at, "rows", 1));
    SX_ASSIGN(m.amax, number(json, at, "amax", 0));
    SX_ASSIGN(m.rms, number(json, at, "rms", 0));
    SX_ASSIGN(const JsonValue* p, member(json, at, "percentiles", &JsonValue::is_object));
    SX_ASSIGN(m.p99, number(*p, at + ".percentiles", "99", 0));
    SX_ASSIGN(m.p99_9, number(*p, at + ".percentiles", "99.9", 0));
    SX_ASSIGN(m.p99_99, number(*p, at + ".percentiles", "99.99", 0));
    return {};
  }

  Status read_experts() {
    SX_ASSIGN(const JsonValue* layers, member(root_, "", "experts", &JsonValue::is_array));
    for (const JsonValue& json : layers->array()) {
      SX_ASSIGN(const int64_t layer, count(json, "experts", "layer", 0));
      SX_ASSIGN(const JsonValue* tokens, member(json, "experts", "tokens", &JsonValue::is_array));
      std::vector<int64_t>& counts = scales_.expert_tokens[layer];
      for (const JsonValue& n : tokens->array()) {
        if (!n.is_int() || n.as_int() < 0)
          return bad(fmt::format("experts of layer {}", layer), "expected counts of tokens");
        counts.push_back(n.as_int());
      }
    }
    SX_ASSIGN(const JsonValue* unreached, member(root_, "", "unreached", &JsonValue::is_array));
    for (const JsonValue& json : unreached->array()) {
      UnreachedExpert& expert = scales_.unreached.emplace_back();
      SX_ASSIGN(expert.layer, count(json, "unreached", "layer", 0));
      SX_ASSIGN(expert.expert, count(json, "unreached", "expert", 0));
      SX_ASSIGN(expert.source, source(json, "unreached"));
    }
    return {};
  }

  std::string path_;
  const JsonValue& root_;
  InputScales scales_;
};

}  // namespace

std::string_view scale_source_name(ScaleSource source) {
  return kSourceNames[static_cast<size_t>(source)];
}

bool is_usable_multiplier(double g) {
  return g >= double{std::numeric_limits<float>::min()} &&
         g <= double{std::numeric_limits<float>::max()};
}

std::string input_scales_text(const InputScales& scales) {
  Json modules = Json::object();
  for (const auto& [module, entry] : scales.modules) modules[module] = entry_json(entry);
  Json experts = Json::array();
  for (const auto& [layer, tokens] : scales.expert_tokens)
    experts.push_back({{"layer", layer}, {"tokens", tokens}});
  Json unreached = Json::array();
  for (const UnreachedExpert& expert : scales.unreached)
    unreached.push_back({{"layer", expert.layer},
                         {"expert", expert.expert},
                         {"source", scale_source_name(expert.source)}});
  const Json json = {{"format", kInputScalesFormat},
                     {"format_version", kInputScalesVersion},
                     {"version", scales.version},
                     {"model", {{"name", scales.model}, {"hash", scales.model_hash}}},
                     {"text",
                      {{"source", scales.text.source},
                       {"sha256", scales.text.sha256},
                       {"tokens", scales.text.n_tokens},
                       {"sequences", scales.text.n_sequences}}},
                     {"policy", scales.policies},
                     {"isa", scales.isa},
                     {"headroom", scales.headroom},
                     {"modules", std::move(modules)},
                     {"experts", std::move(experts)},
                     {"unreached", std::move(unreached)}};
  return dump_json(json, 1) + "\n";
}

Status write_input_scales(const std::filesystem::path& path, const InputScales& scales) {
  return write_text_file(path, input_scales_text(scales));
}

Result<InputScales> read_input_scales(const std::filesystem::path& path) {
  SX_ASSIGN(const JsonValue json, read_json(path));
  return InputScalesReader(path, json).read();
}

Status check_input_scales(const InputScales& scales, const std::string& name,
                          const std::string& model_hash, std::span<const std::string> modules) {
  if (scales.model_hash != model_hash)
    return fail_at({name, {}, "model.hash", {}}, Code::kInput,
                   "{} was measured on another model ({}, hash {}), this one has the hash {}: "
                   "calibrate this model",
                   quote_name(name, 400), quote_name(scales.model),
                   quote_name(scales.model_hash.substr(0, 12)), model_hash.substr(0, 12));
  const auto is_missing = [&](const std::string& m) { return !scales.modules.contains(m); };
  const auto n_missing = std::count_if(modules.begin(), modules.end(), is_missing);
  if (n_missing == 0) return {};
  const std::string& first = *std::find_if(modules.begin(), modules.end(), is_missing);
  return fail_at({name, first, "modules", {}}, Code::kInput,
                 "{} has no entry for {} of the model's {} linears, {} first: calibrate the model "
                 "again",
                 quote_name(name, 400), n_missing, modules.size(), quote_name(first));
}

}  // namespace sextant
