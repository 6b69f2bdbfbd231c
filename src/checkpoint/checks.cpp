// Patterns applied to the checkpoint's modules, then every record held against what was declared.
#include "checkpoint/checks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "checkpoint/dialects/dialect.h"
#include "checkpoint/dialects/expert_stack.h"
#include "io/quote.h"

namespace sextant {
namespace {

// Below this share of the parameters that should be quantized, a checkpoint labelled as quantized
// is most likely a failed export (case C037).
constexpr double kLowCoverage = 0.5;

std::string_view last_part(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}
std::string_view parent_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::string_view class_of(std::string_view module, bool is_matrix) {
  if (!is_matrix) return "";
  const std::string_view last = last_part(module);
  for (const std::string_view name :
       {"embed_tokens", "wte", "wpe", "word_embeddings", "position_embeddings", "tok_embeddings"})
    if (last == name) return "Embedding";
  return "Linear";
}

bool is_router(std::string_view module) {
  const std::string_view last = last_part(module);
  return last == "gate" || last == "router" || last == "shared_expert_gate";
}

// The name that rules know a linear by: experts of a stack are one module to them.
std::string rule_name(const LinearRecord& record) {
  return record.weight.expert < 0 ? record.module : stack_module(record.module);
}

// Every module that owns a tensor, under the names the file has.
std::vector<ModuleName> modules_of(const TensorMap& tensors, const Resolved& resolved,
                                   const JsonValue* config) {
  std::map<std::string, bool, std::less<>> names;  // name, whether it is a matrix
  for (const auto& [name, ref] : tensors) {
    const std::string_view parent = parent_of(name);
    if (!parent.empty()) names.emplace(parent, false);
    if (ref.info->shape.size() >= 3) names.emplace(name, false);  // fused experts
  }
  // A stack of plain weights is a parameter, no Linear, to what makes rules of classes.
  for (const auto& [module, record] : resolved.linears)
    if (record.weight.expert < 0)
      names[module] = true;
    else
      names[stack_module(module)] = is_quantized(record.scheme);
  // A tied head is no tensor of its own, but configs exclude it all the same.
  if (model_flag(config, "tie_word_embeddings") || config == nullptr)
    names.emplace("lm_head", true);
  std::vector<ModuleName> modules;
  for (const auto& [name, is_matrix] : names) modules.push_back({name, class_of(name, is_matrix)});
  return modules;
}

struct Verdict {
  std::optional<size_t> excluded_by;  // index into quant.exclude
  const DeclaredScheme* declared = nullptr;
  std::string rule;
};

void add_bad_pattern(const Error& error, std::string_view source, FindingSet& findings) {
  Finding f;
  f.id = "P8";
  f.slug = "bad-pattern";
  f.severity = Severity::kError;
  f.message = fmt::format("{}: {}", source, error.text);
  f.remedy = "correct the pattern";
  f.instances = {std::string(source)};
  findings.add(std::move(f));
}

void add_unmatched(const PatternReport& report, FindingSet& findings) {
  Finding f;
  f.id = "P1";
  f.slug = "pattern-matches-nothing";
  f.severity = Severity::kWarning;
  f.message = fmt::format(
      "{}: the pattern {} matches no module{}", report.source, quote_name(report.pattern),
      report.pattern.starts_with("re:") ? " (it is matched from the start of the name)" : "");
  f.remedy = "correct the pattern, or remove it";
  f.instances = {report.pattern};
  findings.add(std::move(f));
}

// Runs one list of patterns; calls hit(module index, pattern index) and adds a report each.
template <class Hit>
void run_patterns(const std::vector<std::string>& patterns, PatternStyle style, bool targets,
                  const std::string& source, const std::vector<ModuleName>& modules,
                  std::vector<PatternReport>& reports, FindingSet& findings, Hit&& hit) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    auto matcher = PatternMatcher::compile(patterns[i], style, targets);
    auto matched = matcher ? matcher->match(modules)
                           : Result<std::vector<size_t>>(tl::unexpected(matcher.error()));
    PatternReport report{source, patterns[i], {}};
    if (!matched) {
      add_bad_pattern(matched.error(), source, findings);
      reports.push_back(std::move(report));
      continue;
    }
    for (const size_t m : *matched) {
      hit(m, i);
      report.matched.push_back(modules[m].name);
    }
    if (report.matched.empty()) add_unmatched(report, findings);
    reports.push_back(std::move(report));
  }
}

// What the config says about every module, by module index.
std::vector<Verdict> judge_modules(const QuantConfig& quant, const std::vector<ModuleName>& modules,
                                   std::vector<PatternReport>& reports, FindingSet& findings) {
  std::vector<Verdict> verdicts(modules.size());
  run_patterns(quant.exclude, quant.exclude_style(), false, quant.exclude_source, modules, reports,
               findings, [&](size_t m, size_t pattern) {
                 if (!verdicts[m].excluded_by) verdicts[m].excluded_by = pattern;
               });
  // Names before class names, within each the first target in file order (nvfp4.md 2.1).
  std::vector<std::optional<size_t>> by_name(modules.size());
  std::vector<std::optional<size_t>> by_class(modules.size());
  for (size_t g = 0; g < quant.groups.size(); ++g) {
    const QuantGroup& group = quant.groups[g];
    run_patterns(group.targets, PatternStyle::kExact, true, fmt::format("{} targets", group.name),
                 modules, reports, findings, [&](size_t m, size_t pattern) {
                   const std::string& target = group.targets[pattern];
                   const bool named = target.starts_with("re:") || target == modules[m].name;
                   auto& slot = named ? by_name[m] : by_class[m];
                   if (!slot) slot = g;
                 });
  }
  for (size_t m = 0; m < modules.size(); ++m) {
    Verdict& verdict = verdicts[m];
    const auto layer = quant.layers.find(modules[m].name);
    const auto group = by_name[m] ? by_name[m] : by_class[m];
    if (verdict.excluded_by) {
      verdict.rule = quant.exclude_source + ": " + quant.exclude[*verdict.excluded_by];
    } else if (layer != quant.layers.end()) {
      verdict.declared = &layer->second;
      verdict.rule = "quantized_layers";
    } else if (group) {
      verdict.declared = &quant.groups[*group].declared;
      verdict.rule = quant.groups[*group].name;
    } else if (!quant.mixed && quant.style != QuantConfig::Style::kNone &&
               quant.style != QuantConfig::Style::kCompressedTensors &&
               modules[m].class_name == "Linear") {
      verdict.declared = &quant.whole;
      verdict.rule = quant.algorithm;
    }
  }
  return verdicts;
}

Finding about(std::string id, std::string slug, Severity severity, const LinearRecord& record,
              std::string message, std::string remedy) {
  return finding_at(std::move(id), std::move(slug), severity, record.weight, std::move(message),
                    std::move(remedy));
}

// DeepSeek-V4's releases name FP8 alone and say elsewhere that their experts have 4 bits:
// expert_dtype "fp4" (nvfp4.md 2.5), or moe_quant_algo in NVIDIA's exports.
bool declares_4_bit_experts(const JsonValue* config) {
  if (config == nullptr) return false;
  const JsonValue* dtype = config->find("expert_dtype");
  if (dtype != nullptr && dtype->is_string() && dtype->as_string() == "fp4") return true;
  const JsonValue* quant = config->find("quantization_config");
  return quant != nullptr && quant->is_object() && quant->find("moe_quant_algo") != nullptr;
}

// Whether two FP8 forms are the same bytes: a block scale over a matrix no larger than a block.
bool is_one_block(const LinearRecord& record, Scheme declared) {
  return declared == Scheme::kFp8Block && record.scheme == Scheme::kFp8Tensor && record.n <= 128 &&
         record.k <= 128;
}

// Not excluded, declared quantized, stored plain (C049); excluded, stored quantized (C20); declared
// in one form, stored in another (C044).
void check_contradiction(const LinearRecord& record, const Verdict& verdict,
                         const QuantConfig& quant, const JsonValue* config, FindingSet& findings) {
  const std::string stored(scheme_name(record.scheme));
  if (verdict.excluded_by) {
    if (is_quantized(record.scheme))
      findings.add(
          about("C20", "excluded-but-quantized", Severity::kWarning, record,
                fmt::format("{} is excluded by {} {}, but stored as {}; the stored tensors "
                            "decide",
                            quote_name(record.module), quant.exclude_source,
                            quote_name(quant.exclude[*verdict.excluded_by]), stored),
                "correct the list"));
    return;
  }
  if (verdict.declared == nullptr || !verdict.declared->scheme) return;
  const std::string declared(scheme_name(*verdict.declared->scheme));
  if (!is_quantized(record.scheme)) {
    const bool by_list =
        quant.style == QuantConfig::Style::kFp8 || quant.style == QuantConfig::Style::kMxfp4;
    // The FP8 releases without a list keep what their model code keeps.
    if (quant.style == QuantConfig::Style::kFp8 && quant.exclude.empty()) return;
    const std::string_view last = last_part(record.module);
    if (is_router(record.module) || (by_list && (last == "lm_head" || last == "eh_proj"))) return;
    findings.add(about("P4", "declared-quantized-stored-plain", Severity::kWarning, record,
                       fmt::format("{} is not excluded from {} in {}, but stored as {}: it runs as "
                                   "stored",
                                   quote_name(record.module), declared, quant.source, stored),
                       "add it to the exclusions"));
    return;
  }
  const bool is_expert = record.module.find(".experts.") != std::string::npos;
  const bool is_4_bit = has_codes(record.scheme);
  if (is_expert && is_4_bit && declares_4_bit_experts(config)) return;
  if (record.scheme != *verdict.declared->scheme &&
      !is_one_block(record, *verdict.declared->scheme))
    findings.add(about("P5", "config-contradicts-tensors", Severity::kWarning, record,
                       fmt::format("{} is {} by {}, but stored as {}; the stored tensors decide",
                                   quote_name(record.module), declared, verdict.rule, stored),
                       "correct the config"));
}

// --- absent activation scales ---

// The linears that share a parent's kind: experts of one layer's block are one family.
std::string family_of(const std::string& module) {
  const size_t experts = module.find(".experts.");
  if (experts == std::string::npos) return {};
  return module.substr(0, experts);
}

struct InputScaleCount {
  int64_t with = 0;
  int64_t without = 0;
};

void check_input_scales(const Resolved& resolved,
                        const std::map<std::string_view, const Verdict*>& verdicts,
                        const QuantConfig& quant, FindingSet& findings) {
  const auto has_stored = [](const LinearRecord& record) {
    return std::any_of(record.tensors.begin(), record.tensors.end(), [](const TensorInfo* info) {
      return info != nullptr &&
             (info->name.ends_with("input_scale") || info->name.ends_with("input_global_scale"));
    });
  };
  std::map<std::string, InputScaleCount> families;
  for (const auto& [module, record] : resolved.linears)
    if (record.scheme == Scheme::kNvfp4 || record.scheme == Scheme::kFp8Tensor)
      ++(has_stored(record) ? families[family_of(module)].with
                            : families[family_of(module)].without);
  for (const auto& [module, record] : resolved.linears) {
    if (record.scheme != Scheme::kNvfp4 && record.scheme != Scheme::kFp8Tensor) continue;
    if (has_stored(record)) continue;
    const auto verdict = verdicts.find(rule_name(record));
    Activations declared = Activations::kUnknown;
    if (verdict != verdicts.end() && verdict->second->declared != nullptr)
      declared = verdict->second->declared->activations;
    if (declared == Activations::kNone || declared == Activations::kDynamic) continue;
    const std::string family = family_of(module);
    const bool lost =
        declared == Activations::kStatic ||
        (declared == Activations::kUnknown && !family.empty() && families[family].with > 0);
    if (!lost) continue;
    const bool divisor = record.scheme == Scheme::kNvfp4 && record.ranges.front().is_divisor;
    Finding f = about("C15", "missing-input-scale", Severity::kError, record, "",
                      "recalibrate, or run with activations that are not quantized");
    f.tensor = module + (divisor ? ".input_global_scale" : ".input_scale");
    f.offset.reset();
    f.message = fmt::format(
        "{} is missing: {}", quote_name(f.tensor),
        declared == Activations::kStatic
            ? fmt::format("{} declares quantized activations with stored scales", quant.source)
            : "other experts of this layer have theirs");
    f.activation_only = true;
    findings.add(std::move(f));
  }
}

// --- coverage ---

struct Coverage {
  int64_t quantized = 0;
  int64_t all = 0;
  double share() const {
    return all == 0 ? 1.0 : static_cast<double>(quantized) / static_cast<double>(all);
  }
};

void check_coverage(const TensorMap& tensors, const QuantConfig& quant, const Resolved& resolved,
                    const std::map<std::string_view, const Verdict*>& verdicts,
                    FindingSet& findings) {
  if (quant.style == QuantConfig::Style::kNone) return;
  const bool says_quantized = quant.whole.scheme || !quant.groups.empty() || quant.mixed;
  if (!says_quantized) return;
  const auto excluded = [&](std::string_view module) {
    const auto it = verdicts.find(module);
    return it != verdicts.end() && it->second->excluded_by.has_value();
  };
  Coverage total;
  Coverage experts;
  const auto count = [&](std::string_view name, int64_t n, bool quantized) {
    for (Coverage* c : {&total, &experts}) {
      if (c == &experts && name.find("experts") == std::string_view::npos) continue;
      c->all += n;
      if (quantized) c->quantized += n;
    }
  };
  std::set<std::string_view> counted;  // stacks
  for (const auto& [module, record] : resolved.linears) {
    if (record.weight.expert >= 0) counted.insert(record.weight.info->name);
    const std::string rule = rule_name(record);
    const bool is_excluded =
        excluded(rule) || (record.weight.expert >= 0 && excluded(parent_of(rule)));
    const bool counts = class_of(module, true) == "Linear" && !is_router(module) &&
                        last_part(module) != "lm_head" && !is_excluded;
    if (counts || is_quantized(record.scheme))
      count(module, record.n * record.k, is_quantized(record.scheme));
  }
  for (const auto& [name, ref] : tensors) {
    if (ref.info->shape.size() < 3 || name.find("experts") == std::string_view::npos) continue;
    if (counted.contains(name)) continue;
    if (excluded(name) || excluded(parent_of(name)) || resolved.harmless.count(name) != 0) continue;
    const bool plain = dtype_bits(ref.info->dtype) >= 16;
    if (plain)
      count(name, ref.info->n_elements(), false);
    else if (is_codes_dtype(ref.info->dtype) && !name.ends_with("_scales"))
      count(name,
            ref.info->dtype == DType::kF4 ? ref.info->n_elements() : 2 * ref.info->n_elements(),
            true);
  }
  if (total.all == 0 || total.share() >= kLowCoverage) return;
  Finding f;
  f.id = "P6";
  f.slug = "low-coverage";
  f.severity = Severity::kWarning;
  f.value = total.share();
  f.expected =
      fmt::format("at least {:.0f} % of the parameters that are not excluded", 100 * kLowCoverage);
  f.message = fmt::format("{} says {}, but {:.0f} % of the parameters it covers are quantized",
                          quant.source, quote_name(quant.algorithm), 100 * total.share());
  if (experts.all > 0)
    f.message += fmt::format(", {:.0f} % of the experts'", 100 * experts.share());
  f.remedy = "the export most likely skipped layers: export it again";
  f.instances = {quant.source};
  findings.add(std::move(f));
}

}  // namespace

std::vector<PatternReport> check_against_config(const TensorMap& tensors, const QuantConfig& quant,
                                                const JsonValue* config, Resolved& resolved,
                                                FindingSet& findings) {
  std::vector<PatternReport> reports;
  const std::vector<ModuleName> modules = modules_of(tensors, resolved, config);
  const std::vector<Verdict> verdicts = judge_modules(quant, modules, reports, findings);
  std::map<std::string_view, const Verdict*> by_name;
  for (size_t m = 0; m < modules.size(); ++m) by_name[modules[m].name] = &verdicts[m];
  for (const auto& [layer, declared] : quant.layers)
    if (by_name.count(layer) == 0) {
      // Containers (experts) and fused names are keyed by a prefix of the modules they mean.
      const auto next = std::lower_bound(
          modules.begin(), modules.end(), layer + ".",
          [](const ModuleName& module, const std::string& name) { return module.name < name; });
      if (next == modules.end() || !next->name.starts_with(layer + "."))
        add_unmatched({quant.source + " quantized_layers", layer, {}}, findings);
    }
  for (auto& [module, record] : resolved.linears) {
    const auto verdict = by_name.find(rule_name(record));
    if (verdict == by_name.end()) continue;
    record.config_group = verdict->second->rule;
    check_contradiction(record, *verdict->second, quant, config, findings);
  }
  check_input_scales(resolved, by_name, quant, findings);
  check_fused_ratios(resolved, findings);
  check_coverage(tensors, quant, resolved, by_name, findings);
  return reports;
}

}  // namespace sextant
