// C14: parts that engines fuse, with global scales of their own.
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "checkpoint/checks.h"
#include "checkpoint/dialects/dialect.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr float kFusedRatio = 1.001F;  // nvfp4.md 3.2, C14

}  // namespace

void check_fused_ratios(const Resolved& resolved, FindingSet& findings) {
  const std::array<std::vector<std::string_view>, 4> kGroups = {
      {{"q_proj", "k_proj", "v_proj"},
       {"gate_proj", "up_proj"},
       {"w1", "w3"},
       {"q_a_proj", "kv_a_proj_with_mqa"}}};
  for (const auto& [module, record] : resolved.linears) {
    const size_t dot = module.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string_view parent = std::string_view(module).substr(0, dot);
    const std::string_view last = std::string_view(module).substr(dot + 1);
    for (const auto& group : kGroups) {
      if (last != group[0] || record.scheme != Scheme::kNvfp4) continue;
      float low = std::numeric_limits<float>::infinity();
      float high = 0;
      for (const std::string_view part : group) {
        const auto it = resolved.linears.find(fmt::format("{}.{}", parent, part));
        if (it == resolved.linears.end() || it->second.scheme != Scheme::kNvfp4) continue;
        for (const ScaleRange& range : it->second.ranges) {
          low = std::min(low, range.g);
          high = std::max(high, range.g);
        }
      }
      const float ratio = high / low;
      if (!std::isfinite(ratio) || !(ratio > kFusedRatio)) continue;
      Finding f =
          finding_at("C14", "fused-scale-ratio", Severity::kNote, record.weight,
                     fmt::format("{} and the projections beside it have global scales that "
                                 "differ by a factor of {:.4f}; each keeps its own here, but an "
                                 "engine that takes one for all gets a gain error",
                                 quote_name(record.module), ratio),
                     "");
      f.value = ratio;
      f.expected = "at most 1.001 for engines that fuse them";
      findings.add(std::move(f), ratio);
    }
  }
}

}  // namespace sextant
