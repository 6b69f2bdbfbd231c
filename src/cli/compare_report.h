// Two models held against each other, as text for a terminal and as the JSON of
// docs/compare.schema.json; and the command that makes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/load_model.h"
#include "forge/compare_models.h"
#include "io/json.h"

namespace sextant {

struct CompareModelsCommand {
  std::string a;
  std::string b;  // "": A under another policy
  std::vector<std::string> policy_a, policy_b;
  ScoredText files;
  int64_t window = 0;  // 0: 512, or what the models take
  int64_t max_windows = 16;
  std::optional<double> max_kl;
};
Result<int> run_compare_models(Context& context, const CompareModelsCommand& options);

// What was compared.
struct CompareSubject {
  std::string a, b;
  std::vector<std::string> policy_a, policy_b;
  std::string isa;
  int64_t n_ids = 0;  // of the text; the report says how many were used
  std::string gate;   // the sentence of a gate that does not hold
  double seconds = 0;
};

std::string compare_text(const CompareSubject& subject, const CompareReport& report, bool all_taps);
Json compare_json(const CompareSubject& subject, const CompareReport& report);

// "identical", "explained", "diverges" or "bad".
std::string_view compare_verdict(const CompareReport& report);
// "embed", "0", ..., "head".
std::string stage_label(const CompareReport& report, const StageReport& stage);
// "q of layer 3 (module): relative L2 0.25 (...): 1.25 times A's".
std::string divergence_text(const Divergence& divergence);

}  // namespace sextant
