// What a checkpoint lacks by comparison with itself: layers and experts that should be alike. Works
// for architectures this program cannot run; for those it can, binding says more (check_parameters
// in model/model.h).
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "checkpoint/config.h"
#include "doctor/checks/checks.h"
#include "io/quote.h"

namespace sextant {
namespace {

// Fewer layers may all differ for good reasons.
constexpr size_t kMinLayers = 8;
constexpr size_t kFewModules = 2;

// Modules of a layer by name inside it: "model.layers.3.self_attn.q_proj.weight" is layer 3,
// "self_attn.q_proj". Experts are left out: they are compared with each other.
std::optional<std::pair<int64_t, std::string>> place_of(std::string_view tensor) {
  // The text model's layers only: towers beside it count their own.
  size_t at = std::string_view::npos;
  for (const std::string_view prefix :
       {"layers.", "model.layers.", "language_model.model.layers.", "model.language_model.layers."})
    if (tensor.starts_with(prefix)) at = prefix.size() - 7;
  if (tensor.find(".experts.") != std::string_view::npos) return std::nullopt;
  const NamePosition position = name_position(tensor);
  if (at == std::string_view::npos || !position.layer || position.expert) return std::nullopt;
  const size_t begin = tensor.find('.', at + 7);
  const size_t end = tensor.rfind('.');
  if (begin == std::string_view::npos || end <= begin) return std::nullopt;
  return std::pair(*position.layer, std::string(tensor.substr(begin + 1, end - begin - 1)));
}

Finding lacks(const char* id, const char* slug, Severity severity, std::string name,
              std::string message) {
  Finding f;
  f.id = id;
  f.slug = slug;
  f.severity = severity;
  f.tensor = std::move(name);
  f.message = std::move(message);
  f.remedy = "fetch or export the checkpoint again";
  return f;
}

using Signature = std::set<std::string, std::less<>>;

void check_layers(CheckContext& context) {
  std::map<int64_t, Signature> layers;
  for (const auto& [name, ref] : context.checkpoint.tensors())
    if (auto place = place_of(name); place && !context.checkpoint.harmless_tensors().contains(name))
      layers[place->first].insert(std::move(place->second));
  if (layers.size() < kMinLayers) return;
  std::map<Signature, int64_t> counts;
  for (const auto& [layer, signature] : layers) ++counts[signature];
  const auto common =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (common->second < static_cast<int64_t>(layers.size() / 2)) return;
  for (const auto& [layer, signature] : layers) {
    // The first and the last layer differ by design in many models.
    if (counts[signature] > 1 || layer == layers.begin()->first || layer == layers.rbegin()->first)
      continue;
    // Modules that the others lack mean another kind of layer, not a damaged one.
    if (!std::includes(common->first.begin(), common->first.end(), signature.begin(),
                       signature.end()))
      continue;
    std::vector<std::string> missing;
    std::set_difference(common->first.begin(), common->first.end(), signature.begin(),
                        signature.end(), std::back_inserter(missing));
    if (missing.empty() || missing.size() > kFewModules) continue;
    for (const std::string& module : missing)
      context.findings.add(lacks("C16", "layer-lacks-module", Severity::kWarning,
                                 fmt::format("model.layers.{}.{}", layer, module),
                                 fmt::format("layer {} has no {}, which {} other layers have",
                                             layer, quote_name(module), common->second)));
  }
}

// Layers that the config counts and no tensor belongs to, where others have some.
void check_missing_layers(CheckContext& context) {
  const int64_t n = model_int(context.checkpoint.config(), "num_hidden_layers").value_or(0);
  std::set<int64_t> found;
  for (const auto& [name, ref] : context.checkpoint.tensors())
    if (const auto place = place_of(name)) found.insert(place->first);
  if (found.empty() || n > 100'000) return;
  for (int64_t layer = 0; layer < n; ++layer)
    if (!found.contains(layer))
      context.findings.add(
          lacks("C16", "missing-layer", Severity::kError, fmt::format("layers.{}", layer),
                fmt::format("no tensor of layer {} is in the checkpoint; config.json counts {} "
                            "layers",
                            layer, n)));
}

// Experts of a layer: numbers without gaps, as many as the config counts, all with the same parts.
void check_experts(CheckContext& context) {
  using Parts = std::set<std::string_view>;  // names live as long as the checkpoint
  std::map<std::string_view, std::map<int64_t, Parts>> blocks;  // by "...mlp.experts"
  for (const auto& [name, ref] : context.checkpoint.tensors()) {
    // Only weights count: a scale without one is C15.
    if (!name.ends_with(".weight") && !name.ends_with(".weight_packed")) continue;
    const size_t at = name.find(".experts.");
    if (at == std::string_view::npos) continue;
    const NamePosition position = name_position(name);
    if (!position.expert || context.checkpoint.harmless_tensors().contains(name)) continue;
    const size_t begin = name.find('.', at + 9);
    const size_t end = name.rfind('.');
    if (begin == std::string_view::npos || end <= begin) continue;
    blocks[name.substr(0, at + 8)][*position.expert].insert(
        name.substr(begin + 1, end - begin - 1));
  }
  for (const auto& [module, record] : context.checkpoint.linears()) {
    if (record.weight.expert < 0 ||
        context.checkpoint.harmless_tensors().contains(record.weight.info->name))
      continue;
    const size_t at = module.find(".experts.");
    if (at == std::string::npos) continue;
    const std::string_view name = module;
    blocks[name.substr(0, at + 8)][record.weight.expert].insert(name.substr(name.rfind('.') + 1));
  }
  int64_t declared = 0;
  for (const char* name :
       {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"})
    if (declared == 0) declared = model_int(context.checkpoint.config(), name).value_or(0);
  for (const auto& [block, experts] : blocks) {
    // Without a count in the config, gaps may be what an expert-parallel slice leaves.
    const int64_t n = declared > 0 ? declared : experts.rbegin()->first + 1;
    Parts all;
    for (const auto& [expert, parts] : experts) all.insert(parts.begin(), parts.end());
    for (int64_t e = 0; e < std::min<int64_t>(n, 100'000); ++e) {
      const auto it = experts.find(e);
      if (it == experts.end()) {
        if (declared == 0) continue;
        context.findings.add(
            lacks("E2", "missing-expert", Severity::kError, fmt::format("{}.{}", block, e),
                  fmt::format("{} has no expert {}; {} are expected", quote_name(block), e, n)));
        continue;
      }
      for (const std::string_view part : all)
        if (!it->second.contains(part))
          context.findings.add(lacks(
              "E2", "missing-expert", Severity::kError, fmt::format("{}.{}.{}", block, e, part),
              fmt::format("expert {} of {} has no {}, which other experts have", e,
                          quote_name(block), quote_name(part))));
    }
  }
}

}  // namespace

void check_structure(CheckContext& context) {
  check_layers(context);
  check_missing_layers(context);
  check_experts(context);
}

}  // namespace sextant
