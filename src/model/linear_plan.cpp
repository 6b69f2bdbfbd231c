// Implements linear_plan.h.
#include "model/linear_plan.h"

#include <map>
#include <utility>

namespace sextant {
namespace {

constexpr size_t kMaxInstances = 8;

}  // namespace

std::string act_text(const LinearPolicy& policy) {
  std::string text(act_name(policy.act));
  if (policy.act == Act::kA4Static && policy.headroom != 1.0F)
    text += fmt::format("*{}", policy.headroom);
  if (is_a4(policy.act) && policy.quantizer != Nvfp4Profile::kA)
    text += fmt::format(",quantizer={}", nvfp4_profile_name(policy.quantizer));
  return text;
}

void add_unmet_policies(const Policy& policy, std::span<const BoundLinear> linears,
                        std::vector<Finding>& findings) {
  struct Group {
    const BoundLinear* first = nullptr;
    std::string instead;
    std::vector<std::string> instances;
    int64_t n = 0;
  };
  std::map<std::pair<const PolicyRule*, Unmet>, Group> groups;
  for (const BoundLinear& bound : linears) {
    const LinearPolicy linear = policy_for(bound, policy);
    if (linear.unmet == Unmet::kNone) continue;
    Group& group = groups[{linear.rule, linear.unmet}];
    if (group.n++ == 0) {
      group.first = &bound;
      group.instead = act_text(linear);
    }
    if (group.instances.size() < kMaxInstances) group.instances.push_back(bound.module);
  }
  for (const auto& [key, group] : groups) {
    const auto& [rule, unmet] = key;
    Finding f;
    f.id = "P13";
    f.slug = "policy-not-followed";
    const bool expected = unmet == Unmet::kNotQuantized && !rule->has_pattern;
    f.severity = expected ? Severity::kNote : Severity::kWarning;
    f.message = fmt::format("policy {}: {} takes {} instead, since {}", rule->spec,
                            group.first->module, group.instead, unmet_text(unmet));
    if (unmet == Unmet::kNoInputScale)
      f.remedy = "measure one (sextant calibrate), or take a4:dynamic or a4:token";
    f.tensor = group.first->module;
    const NamePosition position = name_position(f.tensor);
    f.layer = position.layer;
    f.expert = position.expert;
    f.count = group.n;
    f.instances = group.instances;
    findings.push_back(std::move(f));
  }
}

}  // namespace sextant
