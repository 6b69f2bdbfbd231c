// What the config says against what the tensors are, and what the records say among themselves:
// pattern reports, contradictions, coverage, absent activation scales, fused parts with different
// scales. Stored tensors always decide; these are findings.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/finding.h"
#include "checkpoint/patterns.h"
#include "checkpoint/resolve.h"

namespace sextant {

// Sets config_group of every record on the way.
std::vector<PatternReport> check_against_config(const TensorMap& tensors, const QuantConfig& quant,
                                                const JsonValue* config, Resolved& resolved,
                                                FindingSet& findings);

// Among q/k/v, gate/up and their like; part of check_against_config.
void check_fused_ratios(const Resolved& resolved, FindingSet& findings);

}  // namespace sextant
