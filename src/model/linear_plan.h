// What a model does with each of its linears under a policy, before anything is packed: the plan
// that `explain MODEL` prints, and what of a policy could not be followed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/finding.h"
#include "model/policy.h"
#include "model/weights.h"

namespace sextant {

// P13 policy-not-followed, one finding a rule and reason: linears that take their inputs in another
// form than the last rule that matches them wants. A warning where the checkpoint lacks something,
// or where a pattern named the linear; a note where a rule for all met a linear of another kind.
void add_unmet_policies(const Policy& policy, std::span<const BoundLinear> linears,
                        std::vector<Finding>& findings);

// "a16", "a4:static*2,quantizer=B": what the linear does with its inputs.
std::string act_text(const LinearPolicy& policy);

}  // namespace sextant
