// Implements policy.h.
#include "model/policy.h"

#include <algorithm>

#include "checkpoint/patterns.h"

namespace sextant {
namespace {

constexpr size_t kMaxSpecs = 1024;
constexpr size_t kMaxSpecBytes = 4096;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Status parse_act(std::string_view act, std::string_view spec, PolicyRule& rule) {
  const std::string_view head = act.substr(0, act.find(':'));
  if (act == "f32") {
    rule.act = Act::kF32;
  } else if (act == "a16") {
    rule.act = Act::kA16;
  } else if (head == "a8" || head == "a4") {
    return fail(Code::kUnsupported,
                "policy {} is not supported by this version, which does not quantize activations; "
                "use a16 or f32",
                spec);
  } else {
    return fail(Code::kUsage, "policy {}: {} is no activation form; expected f32 or a16", spec,
                act.empty() ? "nothing" : act);
  }
  return {};
}

Status parse_option(std::string_view option, std::string_view spec, PolicyRule& rule) {
  const size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  if (key == "weights") {
    for (const Weights w : {Weights::kStored, Weights::kBf16, Weights::kF32})
      if (value == weights_name(w)) {
        rule.weights = w;
        return {};
      }
    return fail(Code::kUsage, "policy {}: weights={} is not known; expected stored, bf16 or f32",
                spec, value);
  }
  if (key == "quantizer") {
    if (value == "A" || value == "B" || value == "C")
      return fail(Code::kUsage,
                  "policy {}: quantizer={} chooses how activations become NVFP4, but {} does not "
                  "quantize them; leave it out",
                  spec, value, act_name(rule.act));
    return fail(Code::kUsage, "policy {}: quantizer={} is not known; expected A, B or C", spec,
                value);
  }
  return fail(Code::kUsage, "policy {}: {} is not known; expected weights=... or quantizer=...",
              spec, option.empty() ? "an empty option" : option);
}

// [PATTERN=]ACT[,option...]: the first '=' that stands before the first ',' ends the pattern,
// unless it lies within a [set].
Result<PolicyRule> parse_rule(const std::string& spec) {
  if (spec.size() > kMaxSpecBytes)
    return fail(Code::kUsage, "a policy of {} bytes; at most {} are taken", spec.size(),
                kMaxSpecBytes);
  PolicyRule rule;
  rule.spec = spec;
  std::string_view rest = spec;
  const size_t equals = rest.substr(0, rest.find(',')).rfind('=');
  if (equals != std::string_view::npos) {
    rule.pattern = rest.substr(0, equals);
    rule.has_pattern = true;
    rest.remove_prefix(equals + 1);
    if (rule.pattern.empty())
      return fail(Code::kUsage, "policy {}: the pattern before = is empty", spec);
  }
  const std::vector<std::string_view> parts = split(rest, ',');
  SX_TRY(parse_act(parts.front(), spec, rule));
  for (size_t i = 1; i < parts.size(); ++i) SX_TRY(parse_option(parts[i], spec, rule));
  return rule;
}

}  // namespace

std::string_view act_name(Act act) { return act == Act::kF32 ? "f32" : "a16"; }

std::string_view weights_name(Weights weights) {
  switch (weights) {
    case Weights::kStored: return "stored";
    case Weights::kBf16: return "bf16";
    case Weights::kF32: return "f32";
  }
  return "";
}

LinearPolicy Policy::for_module(std::string_view module) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule)
    if (shell_match(rule->pattern, module)) return {rule->act, rule->weights};
  return {};
}

LinearPolicy Policy::for_router(std::string_view module) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule)
    if (rule->has_pattern && shell_match(rule->pattern, module)) return {rule->act, rule->weights};
  return {Act::kF32, Weights::kStored};
}

Result<Policy> parse_policy(std::span<const std::string> specs) {
  if (specs.size() > kMaxSpecs)
    return fail(Code::kUsage, "{} policies; at most {} are taken", specs.size(), kMaxSpecs);
  Policy policy;
  policy.rules.push_back({"*", Act::kA16, Weights::kStored, "a16"});
  for (const std::string& spec : specs) {
    SX_ASSIGN(PolicyRule rule, parse_rule(spec));
    policy.rules.push_back(std::move(rule));
  }
  return policy;
}

Status check_patterns(const Policy& policy, std::span<const std::string> modules) {
  for (const PolicyRule& rule : policy.rules) {
    const bool matched = std::any_of(modules.begin(), modules.end(), [&](const std::string& m) {
      return shell_match(rule.pattern, m);
    });
    if (!matched)
      return fail(Code::kUsage,
                  "policy {}: pattern {} matches none of the model's {} linears; a name looks like "
                  "{}",
                  rule.spec, rule.pattern, modules.size(),
                  modules.empty() ? std::string("(none)") : modules.front());
  }
  return {};
}

}  // namespace sextant
