#include "doctor/engine_table.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

namespace sextant {
namespace {

constexpr size_t kMaxTableLines = 10000;

// In order of harm. A refused load comes first because nothing else happens then.
constexpr std::array<std::string_view, 11> kSymptoms = {
    "refused", "NaN",          "garbage",    "zeros",     "gain", "wrong",
    "clipped", "partly zeros", "less exact", "not known", "none"};

constexpr std::array<EngineCondition, 23> kEngineConditions = {{
    {"always", false, ""},
    {"nvfp4-linear", false, "NVFP4 linears"},
    {"k-not-multiple", false, ""},
    {"fp8-rows-not-multiple", false, ""},
    {"several-config-groups", false, "several config groups"},
    {"nan-scale", true, "block scales that are NaN"},
    {"negative-scale", true, "block scales with the sign bit set"},
    {"small-scales", true, "block scales far below the largest"},
    {"zero-input-scale", true, "input scales that are zero"},
    {"bad-input-scale", true, "input scales that are NaN, infinite or negative"},
    {"missing-input-scale", true, "linears without an input scale"},
    {"weight-only", true, "a checkpoint without input scales"},
    {"zero-weight-scale", true, "global scales that are zero"},
    {"bad-weight-scale", true, "global scales that are NaN, infinite or negative"},
    {"missing-weight-scale", true, "weights without a scale"},
    {"weight-other-convention", true, "global scales in the other convention than their name says"},
    {"input-other-convention", true, "input scales in the other convention than their name says"},
    {"modelopt-names-under-ct", true,
     "ModelOpt's tensor names under quant_method compressed-tensors"},
    {"ct-names-under-modelopt", true,
     "compressed-tensors' tensor names under quant_method modelopt"},
    {"pre-quant-scale", true, "AWQ's pre_quant_scale"},
    {"excluded-but-quantized", true, "linears that the config excludes but the file quantizes"},
    {"declared-quantized-stored-plain", true,
     "linears that the config quantizes but the file stores plain"},
    {"index-lacks-tensor", true, "tensors that the index does not list"},
}};

constexpr std::array<std::pair<std::string_view, FusedRule>, 7> kFusedRules = {{
    {"own", FusedRule::kOwn},
    {"max-g", FusedRule::kMaxG},
    {"max-G", FusedRule::kMaxBigG},
    {"first", FusedRule::kFirst},
    {"equal", FusedRule::kEqual},
    {"rescale", FusedRule::kRescale},
    {"unknown", FusedRule::kUnknown},
}};
constexpr std::array<std::pair<std::string_view, NameAction>, 4> kNameActions = {{
    {"load", NameAction::kLoad},
    {"drop", NameAction::kDrop},
    {"rename", NameAction::kRename},
    {"unknown", NameAction::kUnknown},
}};

// Reads the members of one object; every fault names the table, the line and the member.
class TableFields {
 public:
  TableFields(const JsonValue& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  Status only(std::initializer_list<std::string_view> known) const {
    if (!object_.is_object())
      return fail(Code::kInput, "{}: expected an object, found {}", where_, object_.kind_name());
    for (const auto& [key, value] : object_.members())
      if (std::find(known.begin(), known.end(), key) == known.end())
        return fail(Code::kInput, "{}: unknown member \"{}\"; known here: {}", where_, key,
                    fmt::join(known, ", "));
    return {};
  }
  Result<std::string> text(std::string_view key, bool needed) const {
    const JsonValue* value = object_.find(key);
    if (value == nullptr && !needed) return std::string();
    if (value == nullptr || !value->is_string() || (needed && value->as_string().empty()))
      return fail(Code::kInput, "{}: \"{}\" must be {}string", where_, key,
                  needed ? "a non-empty " : "a ");
    return value->as_string();
  }
  Result<std::vector<std::string>> texts(std::string_view key, bool needed) const {
    const JsonValue* value = object_.find(key);
    std::vector<std::string> out;
    if (value == nullptr && !needed) return out;
    bool good = value != nullptr && value->is_array() && !value->array().empty();
    for (size_t i = 0; good && i < value->array().size(); ++i) {
      good = value->array()[i].is_string();
      if (good) out.push_back(value->array()[i].as_string());
    }
    if (!good)
      return fail(Code::kInput, "{}: \"{}\" must be a non-empty list of strings", where_, key);
    return out;
  }
  template <class Map>
  Result<typename Map::value_type::second_type> choice(std::string_view key, const Map& map) const {
    SX_ASSIGN(const std::string name, text(key, true));
    std::string known;
    for (const auto& [word, value] : map) {
      if (word == name) return value;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", word);
    }
    return fail(Code::kInput, "{}: \"{}\" is \"{}\", expected one of {}", where_, key, name, known);
  }
  Result<std::string> one_of(std::string_view key,
                             std::initializer_list<std::string_view> words) const {
    SX_ASSIGN(std::string word, text(key, false));
    if (word.empty() || std::find(words.begin(), words.end(), word) != words.end()) return word;
    return fail(Code::kInput, "{}: \"{}\" is \"{}\", expected one of {}", where_, key, word,
                fmt::join(words, ", "));
  }
  Result<int64_t> count(std::string_view key) const {
    const JsonValue* value = object_.find(key);
    if (value == nullptr || !value->is_int() || value->as_int() < 1)
      return fail(Code::kInput, "{}: \"{}\" must be a positive integer", where_, key);
    return value->as_int();
  }
  Result<bool> flag(std::string_view key) const {
    const JsonValue* value = object_.find(key);
    if (value == nullptr) return false;
    if (!value->is_bool())
      return fail(Code::kInput, "{}: \"{}\" must be true or false", where_, key);
    return value->as_bool();
  }
  const std::string& where() const { return where_; }

 private:
  const JsonValue& object_;
  std::string where_;
};

Status read_name_line(const TableFields& fields, EngineLine& line) {
  SX_TRY(fields.only(
      {"kind", "for", "names", "action", "to", "effect", "symptom", "message", "source"}));
  SX_ASSIGN(line.names, fields.texts("names", true));
  SX_ASSIGN(line.action, fields.choice("action", kNameActions));
  SX_ASSIGN(line.to, fields.text("to", line.action == NameAction::kRename));
  return {};
}

Status read_fused_line(const TableFields& fields, EngineLine& line) {
  SX_TRY(fields.only({"kind", "for", "dialect", "where", "parts", "of", "rule", "effect", "symptom",
                      "message", "source"}));
  SX_ASSIGN(line.parts, fields.texts("parts", true));
  if (line.parts.size() < 2)
    return fail(Code::kInput, "{}: \"parts\" must name at least two projections", fields.where());
  SX_ASSIGN(line.rule, fields.choice("rule", kFusedRules));
  SX_ASSIGN(const std::string of, fields.one_of("of", {"weight", "input"}));
  line.of_input = of == "input";
  return {};
}

Status read_condition_line(const TableFields& fields, EngineLine& line) {
  SX_TRY(fields.only({"kind", "for", "dialect", "where", "when", "of", "rescale", "effect",
                      "symptom", "message", "source"}));
  SX_ASSIGN(line.when, fields.text("when", true));
  if (find_engine_condition(line.when) == nullptr)
    return fail(Code::kInput,
                "{}: \"when\" is \"{}\", which is no condition; docs/engines.md has "
                "the list",
                fields.where(), line.when);
  if (line.when.ends_with("-not-multiple")) {
    SX_ASSIGN(line.of, fields.count("of"));
  }
  SX_ASSIGN(line.rescale, fields.flag("rescale"));
  return {};
}

// Lines that only say that all is well need no effect, symptom or message.
bool is_silent(const EngineLine& line) {
  if (line.kind == EngineLineKind::kName)
    return line.action == NameAction::kLoad || line.action == NameAction::kRename;
  return line.kind == EngineLineKind::kFused && line.rule == FusedRule::kOwn;
}

Result<EngineLine> read_line(const JsonValue& json, std::string where, const EngineTable& table) {
  const TableFields fields(json, std::move(where));
  if (!json.is_object()) return tl::unexpected<Error>(fields.only({}).error());
  EngineLine line;
  constexpr std::array<std::pair<std::string_view, EngineLineKind>, 3> kKinds = {{
      {"name", EngineLineKind::kName},
      {"fused", EngineLineKind::kFused},
      {"condition", EngineLineKind::kCondition},
  }};
  SX_ASSIGN(line.kind, fields.choice("kind", kKinds));
  if (line.kind == EngineLineKind::kName) SX_TRY(read_name_line(fields, line));
  if (line.kind == EngineLineKind::kFused) SX_TRY(read_fused_line(fields, line));
  if (line.kind == EngineLineKind::kCondition) SX_TRY(read_condition_line(fields, line));
  SX_ASSIGN(line.families, fields.texts("for", false));
  for (const std::string& family : line.families)
    if (table.families.count(family) == 0)
      return fail(Code::kInput, "{}: \"for\" names {}, which \"architectures\" does not have",
                  fields.where(), family);
  SX_ASSIGN(line.dialect, fields.one_of("dialect", {"modelopt", "compressed-tensors"}));
  SX_ASSIGN(line.place, fields.one_of("where", {"experts", "linear"}));
  const bool silent = is_silent(line);
  SX_ASSIGN(line.effect, fields.text("effect", !silent));
  SX_ASSIGN(line.symptom, fields.text("symptom", !silent));
  SX_ASSIGN(line.message, fields.text("message", !silent));
  SX_ASSIGN(line.source, fields.text("source", true));
  if (!line.symptom.empty() && harm_rank(line.symptom) < 0)
    return fail(Code::kInput, "{}: \"symptom\" is \"{}\", expected one that begins with {}",
                fields.where(), line.symptom, fmt::join(kSymptoms, ", "));
  return line;
}

}  // namespace

std::span<const EngineCondition> engine_conditions() { return kEngineConditions; }

const EngineCondition* find_engine_condition(std::string_view name) {
  for (const EngineCondition& condition : kEngineConditions)
    if (condition.name == name) return &condition;
  return nullptr;
}

int harm_rank(std::string_view symptom) {
  for (size_t i = 0; i < kSymptoms.size(); ++i)
    if (symptom == kSymptoms[i] || symptom.starts_with(std::string(kSymptoms[i]) + " "))
      return static_cast<int>(i);
  return -1;
}

std::string EngineTable::family_of(const JsonValue* config) const {
  if (config == nullptr) return {};
  std::string name;
  if (const JsonValue* list = config->find("architectures");
      list != nullptr && list->is_array() && !list->array().empty() && list->array()[0].is_string())
    name = list->array()[0].as_string();
  else if (const JsonValue* type = config->find("model_type"); type != nullptr && type->is_string())
    name = type->as_string();
  for (const auto& [family, names] : families)
    if (std::find(names.begin(), names.end(), name) != names.end()) return family;
  return {};
}

bool EngineTable::concerns(const EngineLine& line, std::string_view family) const {
  return line.families.empty() ||
         std::find(line.families.begin(), line.families.end(), family) != line.families.end();
}

Result<EngineTable> parse_engine_table(std::string_view text, std::string_view name) {
  SX_ASSIGN(const JsonValue json, parse_json(text, name));
  const TableFields fields(json, std::string(name));
  SX_TRY(fields.only({"engine", "as_of", "architectures", "lines"}));
  EngineTable table;
  SX_ASSIGN(table.engine, fields.text("engine", true));
  SX_ASSIGN(table.as_of, fields.text("as_of", true));
  const JsonValue* families = json.find("architectures");
  if (families == nullptr || !families->is_object() || families->members().empty())
    return fail(Code::kInput, "{}: \"architectures\" must be an object of lists of names", name);
  const TableFields family_fields(*families, fmt::format("{}: architectures", name));
  for (const auto& member : families->members()) {
    SX_ASSIGN(table.families[member.first], family_fields.texts(member.first, true));
  }
  const JsonValue* lines = json.find("lines");
  if (lines == nullptr || !lines->is_array() || lines->array().size() > kMaxTableLines)
    return fail(Code::kInput, "{}: \"lines\" must be a list of at most {} lines", name,
                kMaxTableLines);
  for (size_t i = 0; i < lines->array().size(); ++i) {
    SX_ASSIGN(EngineLine line,
              read_line(lines->array()[i], fmt::format("{}: line {}", name, i), table));
    table.lines.push_back(std::move(line));
  }
  return table;
}

}  // namespace sextant
