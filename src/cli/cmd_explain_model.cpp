// `sextant explain MODEL`: what would be done with each linear of a model under these policies, and
// why: nothing is packed and nothing large is read.
#include "cli/cmd_explain_model.h"

#include <map>
#include <tuple>

#include "cli/format.h"
#include "cli/load_model.h"
#include "cli/table.h"
#include "cli/warm_up.h"
#include "doctor/diagnosis.h"
#include "model/linear_plan.h"

namespace sextant {
namespace {

std::string_view form_text(WeightForm form) {
  switch (form) {
    case WeightForm::kF32: return "f32";
    case WeightForm::kBf16: return "bf16";
    case WeightForm::kF16: return "f16";
    case WeightForm::kFp8: return "fp8";
    case WeightForm::kNvfp4: return "nvfp4";
    case WeightForm::kMxfp4: return "mxfp4";
  }
  return "";
}

// Why its inputs are taken so.
std::string reason_text(const PlannedLinear& linear) {
  const LinearPolicy& policy = linear.policy;
  if (policy.rule == nullptr) return "a router chooses experts: float32";
  if (!policy.why.empty()) return policy.why;
  if (policy.unmet != Unmet::kNone)
    return fmt::format("not {}: {}", policy.rule->spec, unmet_text(policy.unmet));
  return "policy " + policy.rule->spec;
}

// "model.layers.3.mlp.experts.7.up_proj" as "model.layers.*.mlp.experts.*.up_proj".
std::string family_of(const std::string& module) {
  std::string family;
  bool digits = false;
  for (size_t i = 0; i < module.size(); ++i) {
    const bool starts = i == 0 || module[i - 1] == '.';
    if (starts) {
      const size_t end = std::min(module.find('.', i), module.size());
      digits = end > i && module.find_first_not_of("0123456789", i) >= end;
      if (digits) family += '*';
    }
    if (!digits || module[i] == '.') family += module[i];
  }
  return family;
}

Json document_of(const ModelPlan& plan) {
  Json linears = Json::array();
  for (const PlannedLinear& linear : plan.linears) {
    const LinearRecord& record = *linear.bound.record;
    const InputQuantizer input = input_quantizer(linear.policy, record);
    const bool fixed =
        input.quantizes() && input.scale == InputScale::kStatic && input.form != InputForm::kInt8;
    linears.push_back({{"module", linear.bound.module},
                       {"scheme", scheme_name(record.scheme)},
                       {"rows", linear.bound.n},
                       {"columns", linear.bound.k},
                       {"activations", act_text(linear.policy)},
                       {"input_multiplier", fixed ? json_number(input.multiplier) : Json(nullptr)},
                       {"weights", form_text(linear.form)},
                       {"bytes", linear.weight_bytes},
                       {"path", plan.ops->linear_path(linear.form, linear.act)},
                       {"because", reason_text(linear)}});
  }
  Json rules = Json::array();
  for (const PolicyRule& rule : plan.policy.rules) rules.push_back(rule.spec);
  Json findings = Json::array();
  for (const Finding& finding : plan.findings)
    findings.push_back({{"id", finding.id},
                        {"slug", finding.slug},
                        {"severity", severity_name(finding.severity)},
                        {"message", finding.message},
                        {"count", finding.count}});
  int64_t bytes = 0;
  for (const PlannedLinear& linear : plan.linears) bytes += linear.weight_bytes;
  return Json{{"policies", rules},
              {"isa", plan.ops->name},
              {"linears", linears},
              {"weight_bytes", bytes},
              {"kv_bytes_per_token", plan.kv_bytes_per_token},
              {"unmatched", plan.unmatched},
              {"findings", findings}};
}

// A line for linears that differ in their numbers only.
void print_plan(const ModelPlan& plan, Output& out) {
  using Align = Table::Align;
  struct Line {
    int64_t n = 0;
    int64_t bytes = 0;
  };
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, Line> lines;
  std::vector<const Key*> order;
  int64_t bytes = 0;
  for (const PlannedLinear& linear : plan.linears) {
    const auto [at, is_new] = lines.try_emplace(
        {family_of(linear.bound.module), std::string(scheme_name(linear.bound.record->scheme)),
         act_text(linear.policy), std::string(form_text(linear.form)),
         std::string(plan.ops->linear_path(linear.form, linear.act)), reason_text(linear)});
    if (is_new) order.push_back(&at->first);
    ++at->second.n;
    at->second.bytes += linear.weight_bytes;
    bytes += linear.weight_bytes;
  }
  Table table({{"linears"},
               {"", Align::kRight},
               {"stored"},
               {"activations"},
               {"weights"},
               {"memory", Align::kRight},
               {"path"},
               {"because"}});
  for (const Key* key : order) {
    const auto& [family, scheme, act, form, path, reason] = *key;
    const Line& line = lines.at(*key);
    table.add({family, fmt::format("{}", line.n), scheme, act, form,
               format_bytes(static_cast<double>(line.bytes)), path, reason});
  }
  out.write(table.text());
  out.print("\nkernels {}; weights in memory {}; keys and values {} a token\n", plan.ops->name,
            format_bytes(static_cast<double>(bytes)),
            format_bytes(static_cast<double>(plan.kv_bytes_per_token)));
  for (const std::string& spec : plan.unmatched) out.print("matches no linear: {}\n", spec);
}

}  // namespace

Result<int> explain_model(Context& context, const std::string& typed) {
  SX_ASSIGN(std::vector<Allowance> allowed, parse_allowances(context.common.allow));
  SX_ASSIGN(const auto checkpoint, open_checkpoint(typed, std::move(allowed)));
  const auto pool = make_pool(context.common);
  ModelOptions options;
  options.isa = context.common.isa;
  options.policies = context.common.policies;
  options.distrusted_inputs =
      diagnose(*checkpoint, {.quick = true, .progress = {}}, *pool).distrusted_inputs;
  LoadedModel loaded;
  loaded.root = checkpoint->root();
  loaded.pool = pool;
  SX_TRY(prepare_warm_up(context.common, *checkpoint, loaded, options));
  SX_ASSIGN(const std::unique_ptr<ModelPlan> plan, plan_model(*checkpoint, options));
  show_findings(plan->findings);
  if (context.common.json)
    context.out.document(document_of(*plan));
  else
    print_plan(*plan, context.out);
  if (!plan->unmatched.empty())
    return fail_at(at_field("--policy"), Code::kUsage,
                   "policy {}: its pattern matches none of the model's {} linears",
                   plan->unmatched.front(), plan->linears.size());
  SX_TRY(refuse_checkpoint(*checkpoint, checkpoint->findings(), plan->policy));
  return refuse_errors(plan->findings, false) ? 0 : exit_status(Code::kModel);
}

}  // namespace sextant
