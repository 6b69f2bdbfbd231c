// C14: parts that engines fuse, with global scales of their own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "checkpoint/checks.h"
#include "checkpoint/dialects/dialect.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr float kFusedRatio = 1.001F;  // nvfp4.md 3.2, C14

// What engines fuse, as the file has it: linears beside each other, the first of which speaks for
// all. A linear that is stored fused (gate_up_proj of a stack) is looked at by itself.
std::span<const std::string_view> group_led_by(std::string_view module) {
  static constexpr std::string_view kQkv[] = {"q_proj", "k_proj", "v_proj"};
  static constexpr std::string_view kGateUp[] = {"gate_proj", "up_proj"};
  static constexpr std::string_view kW1W3[] = {"w1", "w3"};
  static constexpr std::string_view kLatent[] = {"q_a_proj", "kv_a_proj_with_mqa"};
  const size_t dot = module.rfind('.');
  if (dot == std::string_view::npos) return {};
  for (const std::span<const std::string_view> group :
       {std::span<const std::string_view>(kQkv), std::span<const std::string_view>(kGateUp),
        std::span<const std::string_view>(kW1W3), std::span<const std::string_view>(kLatent)})
    if (module.substr(dot + 1) == group[0]) return group;
  return {};
}

std::string beside(std::string_view module, std::string_view last) {
  return fmt::format("{}.{}", module.substr(0, module.rfind('.')), last);
}

struct GlobalScales {
  float low = std::numeric_limits<float>::infinity();
  float high = 0;
  void add(const LinearRecord& record) {
    for (const ScaleRange& range : record.ranges) {
      low = std::min(low, range.g);
      high = std::max(high, range.g);
    }
  }
};

}  // namespace

void check_fused_ratios(const Resolved& resolved, FindingSet& findings) {
  for (const auto& [module, record] : resolved.linears) {
    if (record.scheme != Scheme::kNvfp4) continue;
    const std::span<const std::string_view> group = group_led_by(module);
    GlobalScales scales;
    scales.add(record);
    for (size_t i = 1; i < group.size(); ++i) {
      const auto it = resolved.linears.find(beside(module, group[i]));
      if (it != resolved.linears.end() && it->second.scheme == Scheme::kNvfp4)
        scales.add(it->second);
    }
    const float ratio = scales.high / scales.low;
    if (!std::isfinite(ratio) || !(ratio > kFusedRatio)) continue;
    Finding f = finding_at(
        "C14", "fused-scale-ratio", Severity::kNote, record.weight,
        fmt::format("{} have global scales that differ by a factor of {:.4f}; each keeps its own "
                    "here, but an engine that takes one for all gets a gain error",
                    group.empty() ? "the parts of " + quote_name(module)
                                  : quote_name(module) + " and the projections beside it",
                    ratio),
        "");
    f.value = ratio;
    f.expected = "at most 1.001 for engines that fuse them";
    findings.add(std::move(f), ratio);
  }
}

}  // namespace sextant
