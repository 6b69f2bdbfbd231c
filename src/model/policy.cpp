// Implements policy.h.
#include "model/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "checkpoint/patterns.h"

namespace sextant {
namespace {

constexpr size_t kMaxSpecs = 1024;
constexpr size_t kMaxSpecBytes = 4096;
constexpr float kLeastHeadroom = 0x1p-20F;
constexpr float kMostHeadroom = 0x1p20F;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

struct ActName {
  Act act;
  std::string_view name;
};
constexpr std::array<ActName, 10> kActs = {{{Act::kF32, "f32"},
                                            {Act::kA16, "a16"},
                                            {Act::kA8, "a8"},
                                            {Act::kA8Fp8, "a8:fp8"},
                                            {Act::kAuto, "auto"},
                                            {Act::kA4Static, "a4:static"},
                                            {Act::kA4Warmup, "a4:warmup"},
                                            {Act::kA4Dynamic, "a4:dynamic"},
                                            {Act::kA4Token, "a4:token"},
                                            {Act::kA4One, "a4:one"}}};

// "a4:static*1.5" is a4:static with a headroom.
Status parse_headroom(std::string_view text, std::string_view spec, PolicyRule& rule) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, rule.headroom);
  if (error == std::errc() && at == end && rule.headroom >= kLeastHeadroom &&
      rule.headroom <= kMostHeadroom)
    return {};
  return fail(Code::kUsage, "policy {}: headroom {} is not a number from 2^-20 to 2^20", spec,
              text.empty() ? "(nothing)" : text);
}

Status parse_act(std::string_view act, std::string_view spec, PolicyRule& rule) {
  const size_t star = act.find('*');
  const std::string_view name = act.substr(0, star);
  const auto* const found = std::find_if(kActs.begin(), kActs.end(),
                                         [&](const ActName& known) { return known.name == name; });
  if (found == kActs.end())
    return fail(
        Code::kUsage,
        "policy {}: {} is no activation form; expected f32, a16, a8, a8:fp8, a4:static[*H], "
        "a4:warmup, a4:dynamic, a4:token, a4:one or auto",
        spec, act.empty() ? "nothing" : act);
  rule.act = found->act;
  if (star == std::string_view::npos) return {};
  if (rule.act != Act::kA4Static)
    return fail(Code::kUsage, "policy {}: only a4:static takes a headroom, {} does not", spec,
                name);
  return parse_headroom(act.substr(star + 1), spec, rule);
}

Status parse_quantizer(std::string_view value, std::string_view spec, PolicyRule& rule) {
  const auto profile = nvfp4_profile_from_name(value);
  if (!profile || value.size() != 1 || value[0] < 'A' || value[0] > 'C')
    return fail(Code::kUsage, "policy {}: quantizer={} is not known; expected A, B or C", spec,
                value);
  if (!is_a4(rule.act) && rule.act != Act::kAuto)
    return fail(Code::kUsage,
                "policy {}: quantizer={} chooses how activations become NVFP4, but {} does not "
                "make them NVFP4; leave it out",
                spec, value, act_name(rule.act));
  rule.quantizer = *profile;
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
  if (key == "quantizer") return parse_quantizer(value, spec, rule);
  return fail(Code::kUsage, "policy {}: {} is not known; expected weights=... or quantizer=...",
              spec, option.empty() ? "an empty option" : option);
}

// [PATTERN=]ACT[,option...]: the last '=' that stands before the first ',' ends the pattern.
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
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto key = [](std::string_view part) { return part.substr(0, part.find('=')); };
    const auto same = [&](std::string_view part) { return key(part) == key(parts[i]); };
    if (std::any_of(parts.begin() + 1, parts.begin() + static_cast<std::ptrdiff_t>(i), same))
      return fail(Code::kUsage, "policy {}: {} is given twice", spec, key(parts[i]));
    SX_TRY(parse_option(parts[i], spec, rule));
  }
  return rule;
}

}  // namespace

std::string_view act_name(Act act) {
  const auto* const found = std::find_if(kActs.begin(), kActs.end(),
                                         [&](const ActName& known) { return known.act == act; });
  return found->name;
}

std::string_view unmet_text(Unmet unmet) {
  switch (unmet) {
    case Unmet::kNone: return "";
    case Unmet::kNotQuantized: return "its weights are not stored in such a form";
    case Unmet::kNoInputScale: return "the checkpoint has no usable input scale for it";
    case Unmet::kNoWarmup: return "nothing was measured for it";
  }
  return "";
}

std::string_view weights_name(Weights weights) {
  switch (weights) {
    case Weights::kStored: return "stored";
    case Weights::kBf16: return "bf16";
    case Weights::kF32: return "f32";
  }
  return "";
}

bool is_same_arithmetic(const LinearPolicy& a, const LinearPolicy& b) {
  const auto what = [](const LinearPolicy& p) {
    const bool a4 = is_a4(p.act);
    return std::tuple(p.act, p.weights, p.from_bf16, a4 ? p.quantizer : Nvfp4Profile::kA,
                      p.act == Act::kA4Static ? p.headroom : 1.0F,
                      p.act == Act::kA4Warmup ? p.warmup_scale : 1.0F);
  };
  return what(a) == what(b);
}

Unmet can_follow(Act act, const LinearRecord& record, bool warmed_up) {
  if (act == Act::kA8Fp8) return is_fp8(record.scheme) ? Unmet::kNone : Unmet::kNotQuantized;
  if (!is_a4(act)) return Unmet::kNone;
  if (!has_codes(record.scheme)) return Unmet::kNotQuantized;
  if (act == Act::kA4Static && !record.input_scale) return Unmet::kNoInputScale;
  if (act == Act::kA4Warmup && !warmed_up) return Unmet::kNoWarmup;
  return Unmet::kNone;
}

namespace {

// What auto chooses, and why; nothing where the rule before decides.
struct AutoChoice {
  std::optional<Act> act;
  std::string why;
};
AutoChoice choose(const Policy& policy, const LinearRecord& record) {
  if (!is_quantized(record.scheme)) return {{}, "its weights are not quantized"};
  const bool static_form = has_codes(record.scheme) || record.scheme == Scheme::kFp8Tensor;
  if (!static_form || !record.input_scale)
    return {{}, "the checkpoint has no usable input scale for it"};
  const auto distrusted = policy.distrusted_inputs.find(record.module);
  if (distrusted != policy.distrusted_inputs.end())
    return {{}, "against its input scale: " + distrusted->second};
  return {has_codes(record.scheme) ? Act::kA4Static : Act::kA8Fp8,
          "the checkpoint has an input scale for it, and nothing is against it"};
}

}  // namespace

LinearPolicy Policy::for_linear(std::string_view module, const LinearRecord& record) const {
  const auto warmup = warmup_scales.find(module);
  const bool warmed_up = warmup != warmup_scales.end();
  LinearPolicy policy;
  if (warmed_up) policy.warmup_scale = warmup->second;
  bool decided = false;
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (!shell_match(rule->pattern, module)) continue;
    Act act = rule->act;
    const bool is_auto = act == Act::kAuto;
    if (is_auto && !decided) {
      AutoChoice choice = choose(*this, record);
      if (policy.why.empty()) policy.why = std::move(choice.why);
      act = choice.act.value_or(Act::kAuto);
    }
    const Unmet unmet = can_follow(act, record, warmed_up);
    if (policy.rule == nullptr) {
      policy.rule = &*rule;
      policy.weights = rule->weights;
      policy.unmet = unmet;
    }
    if (unmet != Unmet::kNone || act == Act::kAuto) continue;
    const bool is_plain = act == Act::kF32 || act == Act::kA16;
    if (!decided) {
      decided = true;
      policy.act = act;
      policy.quantizer = rule->quantizer;
      policy.headroom = rule->headroom;
    }
    if (!is_plain) continue;  // what is quantized comes in as the next plain rule says
    policy.from_bf16 = act == Act::kA16;
    break;
  }
  return policy;
}

LinearPolicy Policy::for_router(std::string_view module, const LinearRecord& record) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule)
    if (rule->has_pattern && shell_match(rule->pattern, module)) return for_linear(module, record);
  LinearPolicy policy;
  policy.act = Act::kF32;
  policy.from_bf16 = false;
  return policy;
}

bool Policy::wants_input_scale(std::string_view module, const LinearRecord& record) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (rule->act == Act::kAuto || !shell_match(rule->pattern, module))
      continue;  // sound ones only
    if (rule->act == Act::kA4Static && has_codes(record.scheme)) return true;
    if (rule->act == Act::kA8Fp8 && is_fp8(record.scheme)) return true;
    if (can_follow(rule->act, record, /*warmed_up=*/true) == Unmet::kNone) return false;
  }
  return false;
}

InputQuantizer input_quantizer(const LinearPolicy& policy, const LinearRecord& record) {
  InputQuantizer quantizer;
  quantizer.from_bf16 = policy.from_bf16;
  quantizer.profile = policy.quantizer;
  switch (policy.act) {
    case Act::kF32:
    case Act::kA16:
    case Act::kAuto: return {};
    case Act::kA8: quantizer.form = InputForm::kInt8; return quantizer;
    case Act::kA8Fp8:
      quantizer.form = InputForm::kFp8;
      quantizer.scale = record.input_scale ? InputScale::kStatic : InputScale::kToken;
      quantizer.multiplier = record.input_scale.value_or(1.0F);
      return quantizer;
    case Act::kA4Static:
      quantizer.divisor = record.input_divisor.value_or(1.0F) / policy.headroom;
      quantizer.multiplier = record.input_scale.value_or(1.0F) * policy.headroom;
      break;
    case Act::kA4Warmup:
      quantizer.divisor = 1.0F / policy.warmup_scale;
      quantizer.multiplier = policy.warmup_scale;
      break;
    case Act::kA4Dynamic: quantizer.scale = InputScale::kTensor; break;
    case Act::kA4Token: quantizer.scale = InputScale::kToken; break;
    case Act::kA4One: break;
  }
  quantizer.form = InputForm::kNvfp4;
  return quantizer;
}

Result<Policy> parse_policy(std::span<const std::string> specs) {
  if (specs.size() > kMaxSpecs)
    return fail(Code::kUsage, "{} policies; at most {} are taken", specs.size(), kMaxSpecs);
  Policy policy;
  policy.rules.emplace_back().spec = "a16";
  for (const std::string& spec : specs) {
    SX_ASSIGN(PolicyRule rule, parse_rule(spec));
    policy.rules.push_back(std::move(rule));
  }
  return policy;
}

std::vector<const PolicyRule*> unmatched_rules(const Policy& policy,
                                               std::span<const std::string> modules) {
  std::vector<const PolicyRule*> unmatched;
  for (const PolicyRule& rule : policy.rules) {
    const bool matched = std::any_of(modules.begin(), modules.end(), [&](const std::string& m) {
      return shell_match(rule.pattern, m);
    });
    if (!matched) unmatched.push_back(&rule);
  }
  return unmatched;
}

Status check_patterns(const Policy& policy, std::span<const std::string> modules) {
  const std::vector<const PolicyRule*> unmatched = unmatched_rules(policy, modules);
  if (unmatched.empty()) return {};
  return fail(Code::kUsage,
              "policy {}: pattern {} matches none of the model's {} linears; a name looks like {}",
              unmatched.front()->spec, unmatched.front()->pattern, modules.size(),
              modules.empty() ? std::string("(none)") : modules.front());
}

}  // namespace sextant
