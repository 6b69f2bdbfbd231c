// What a model does with each of its linears under a policy, before anything is packed: the plan
// that `explain MODEL` prints, and what of a policy could not be followed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/finding.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/policy.h"
#include "model/weights.h"

namespace sextant {

struct PlannedLinear {
  BoundLinear bound;
  LinearPolicy policy;
  WeightForm form = WeightForm::kBf16;  // in memory
  ActForm act = ActForm::kBf16;
  int64_t weight_bytes = 0;  // in memory, but for padding
};

std::vector<PlannedLinear> plan_linears(std::span<const BoundLinear> linears, const Policy& policy);

// P13 policy-not-followed, one finding a rule and reason: linears that take their inputs in another
// form than the last rule that matches them wants. A warning where the checkpoint lacks something,
// where a pattern named the linear, or where no linear follows the rule; a note where a rule for
// all met a linear of another kind.
void add_unmet_policies(std::span<const PlannedLinear> linears, std::vector<Finding>& findings);

// The errors among a checkpoint's findings that refuse it under this policy: those about activation
// scales alone only where some linear wants one that is not there (cli.md section 4).
Status refuse_checkpoint(const Checkpoint& checkpoint, std::span<const Finding> findings,
                         const Policy& policy);

// What binding finds in a checkpoint, with nothing packed and nothing large read. kUnsupported for
// an architecture that no family here knows, kInput for a config that says too little.
struct BoundModel {
  ModelConfig config;
  std::vector<BoundLinear> linears;  // those that are there, in the order of binding
  std::vector<Finding> problems;     // what Model::load would refuse, a finding a name
};
Result<BoundModel> bind_model(const Checkpoint& checkpoint);

// What Model::load would make of a checkpoint with these options, and what it would say.
struct ModelPlan {
  ModelConfig config;
  Policy policy;  // PlannedLinear::policy.rule points into it
  const Ops* ops = nullptr;
  std::vector<PlannedLinear> linears;  // in the order of binding
  std::vector<std::string> unmatched;  // specs of rules that match no linear
  std::vector<Finding> findings;       // of binding, and P13
  int64_t kv_bytes_per_token = 0;
};
// Reads and packs nothing large. Errors as Model::load has them, but for what the plan itself
// shows: parameters that are missing, and patterns that match nothing.
Result<std::unique_ptr<ModelPlan>> plan_model(const Checkpoint& checkpoint,
                                              const ModelOptions& options);

// "a16", "a4:static*2,quantizer=B": what the linear does with its inputs.
std::string act_text(const LinearPolicy& policy);

}  // namespace sextant
