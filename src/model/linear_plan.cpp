// Implements linear_plan.h.
#include "model/linear_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/checked.h"

namespace sextant {
namespace {

constexpr size_t kMaxInstances = 8;

// Values alone, as the layouts hold them; a multiplier a row beside them.
int64_t resident_bytes(const BoundLinear& bound, WeightForm form) {
  const LinearRecord& record = *bound.record;
  const int64_t values = bound.n * bound.k;
  const int64_t multipliers = record.ranges.empty() ? 0 : bound.n * int64_t{sizeof(float)};
  switch (form) {
    case WeightForm::kF32: return values * 4;
    case WeightForm::kBf16:
    case WeightForm::kF16: return values * 2;
    case WeightForm::kFp8: {
      const bool scaled = static_cast<bool>(record.scales);
      const int64_t scales =
          scaled ? ceil_div(bound.n, record.block_n) * ceil_div(bound.k, record.block_k) * 4 : 0;
      return values + scales + multipliers;
    }
    case WeightForm::kNvfp4:
    case WeightForm::kMxfp4:
      return values / 2 + bound.n * ceil_div(bound.k, record.block_k) + multipliers;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<ModelPlan>> plan_model(const Checkpoint& checkpoint,
                                              const ModelOptions& options) {
  auto plan = std::make_unique<ModelPlan>();
  SX_ASSIGN(plan->ops, select_ops(options.isa));
  SX_ASSIGN(plan->policy, parse_policy(options.policies));
  plan->policy.distrusted_inputs = options.distrusted_inputs;
  plan->policy.warmup_scales = options.warmup_scales;
  SX_ASSIGN(BoundModel bound, bind_model(checkpoint));
  plan->config = std::move(bound.config);
  plan->findings = std::move(bound.problems);
  plan->linears = plan_linears(bound.linears, plan->policy);
  add_unmet_policies(plan->linears, plan->findings);
  std::vector<std::string> modules;
  bool f32_cache = true;
  for (const PlannedLinear& planned : plan->linears) {
    const std::string& module = planned.bound.module;
    modules.push_back(module);
    const bool cached = module.ends_with(".k_proj") || module.ends_with(".v_proj");
    f32_cache = f32_cache && !(cached && planned.policy.from_bf16);
  }
  for (const PolicyRule* rule : unmatched_rules(plan->policy, modules))
    plan->unmatched.push_back(rule->spec);
  const ModelConfig& c = plan->config;
  plan->kv_bytes_per_token = c.n_layers * c.n_kv_heads * c.head_dim * 2 * (f32_cache ? 4 : 2);
  return plan;
}

std::vector<PlannedLinear> plan_linears(std::span<const BoundLinear> linears,
                                        const Policy& policy) {
  std::vector<PlannedLinear> plan;
  for (const BoundLinear& bound : linears) {
    PlannedLinear& planned = plan.emplace_back();
    planned.bound = bound;
    planned.policy = policy_for(bound, policy);
    planned.form = resident_form(*bound.record, planned.policy.weights);
    planned.act = act_form(planned.policy.act);
    planned.weight_bytes = resident_bytes(bound, planned.form);
  }
  return plan;
}

Status refuse_checkpoint(const Checkpoint& checkpoint, std::span<const Finding> findings,
                         const Policy& policy) {
  const auto lacks_scale = [&](const auto& linear) {
    const auto& [module, record] = linear;
    const bool takes_one = record.scheme == Scheme::kNvfp4 || record.scheme == Scheme::kFp8Tensor;
    return takes_one && !record.input_scale && policy.wants_input_scale(module, record);
  };
  const auto& linears = checkpoint.linears();
  return refuse_errors(findings, std::any_of(linears.begin(), linears.end(), lacks_scale));
}

std::string act_text(const LinearPolicy& policy) {
  std::string text(act_name(policy.act));
  if (policy.act == Act::kA4Static && policy.headroom != 1.0F)
    text += fmt::format("*{}", policy.headroom);
  if (is_a4(policy.act) && policy.quantizer != Nvfp4Profile::kA)
    text += fmt::format(",quantizer={}", nvfp4_profile_name(policy.quantizer));
  return text;
}

void add_unmet_policies(std::span<const PlannedLinear> linears, std::vector<Finding>& findings) {
  struct Group {
    const BoundLinear* first = nullptr;
    std::string instead;
    std::vector<std::string> instances;
    int64_t n = 0;
  };
  std::map<std::pair<const PolicyRule*, Unmet>, Group> groups;
  std::set<const PolicyRule*> followed;
  for (const PlannedLinear& linear : linears) {
    if (linear.policy.unmet == Unmet::kNone) {
      followed.insert(linear.policy.rule);
      continue;
    }
    Group& group = groups[{linear.policy.rule, linear.policy.unmet}];
    if (group.n++ == 0) {
      group.first = &linear.bound;
      group.instead = act_text(linear.policy);
    }
    if (group.instances.size() < kMaxInstances) group.instances.push_back(linear.bound.module);
  }
  for (const auto& [key, group] : groups) {
    const auto& [rule, unmet] = key;
    Finding f;
    f.id = "P13";
    f.slug = "policy-not-followed";
    const bool expected =
        unmet == Unmet::kNotQuantized && !rule->has_pattern && followed.contains(rule);
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
