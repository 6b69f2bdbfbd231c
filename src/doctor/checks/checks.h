// The families of checks. Each function of a family judges one thing, adds what it finds, and says
// in `skipped` what it could not judge. Thresholds and reasons: nvfp4.md section 3; check_list.cpp
// repeats them for users.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/diagnosis.h"

namespace sextant {

struct CheckContext {
  const Checkpoint& checkpoint;
  const std::vector<LinearSummary>& linears;  // by module; statistics unless the check is quick
  FindingSet& findings;
  std::vector<std::string>& skipped;
  std::map<std::string, std::string, std::less<>>& distrusted_inputs;  // as Diagnosis has them
};

// A finding about one tensor, which may be missing (empty): its name, file and offset are filled
// in.
Finding about_tensor(const TensorRef& ref, const char* id, const char* slug, Severity severity,
                     std::string message, std::string remedy);
// The first tensor that a module has under one of these last names; empty where it has none.
TensorRef tensor_of(const Checkpoint& checkpoint, const std::string& module,
                    std::initializer_list<std::string_view> names);

// codes.cpp: C4 lost blocks, C5 zero blocks, C6 saturated, C7 recipe maximum, C8 subnormal scales,
// C9 loose or random codes, C10 nibbles.
void check_codes(CheckContext& context);
// scales.cpp: C11 norm bound, C12 fallback, C13 spread of the experts' input scales.
void check_activation_scales(CheckContext& context);
// convention.cpp: how the global scales are to be read; P10 where the numbers contradict the names,
// P11 where they contradict each other.
Convention check_convention(CheckContext& context);
// structure.cpp: C16 tensors that the other layers have, or that only one layer has.
void check_structure(CheckContext& context);

}  // namespace sextant
