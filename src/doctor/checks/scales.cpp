// Activation scales: against the norm that feeds the linear, against ModelOpt's fallback, and among
// the experts of a layer.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "io/quote.h"
#include "quant/convert.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

constexpr double kBoundSlack = 1.02;
constexpr double kLeastOfRms = 0.25;
constexpr float kFallback = 0.5F / 2688.0F;  // ModelOpt, for an expert that no token reached
constexpr double kExpertSpread = 256;

Finding about_input_scale(CheckContext& context, const LinearSummary& linear, const char* id,
                          const char* slug, std::string message, std::string remedy) {
  context.distrusted_inputs.emplace(linear.module, fmt::format("{} {}", id, slug));
  const TensorRef ref =
      tensor_of(context.checkpoint, linear.module, {"input_global_scale", "input_scale"});
  Finding f =
      about_tensor(ref, id, slug, Severity::kWarning, std::move(message), std::move(remedy));
  if (!ref) f.tensor = linear.module + ".input_scale";
  f.value = *linear.input_scale;
  return f;
}

struct NormSize {
  double max = 0;
  double rms = 0;
};

// Of a norm's weights in F32, BF16 or F16 vectors; nullopt for anything else.
std::optional<NormSize> norm_size(const TensorRef& ref) {
  if (!ref || ref.info->shape.size() != 1 || ref.info->shape[0] == 0) return std::nullopt;
  const DType dtype = ref.info->dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16) return std::nullopt;
  const int64_t n = ref.info->shape[0];
  NormSize size;
  double sum = 0;
  std::vector<float> values(static_cast<size_t>(n));
  if (!stored_to_f32(dtype, ref.bytes().data(), n, values.data())) return std::nullopt;
  for (const float value : values) {
    if (!std::isfinite(value)) return std::nullopt;
    size.max = std::max(size.max, std::abs(double{value}));
    sum += double{value} * double{value};
  }
  size.rms = std::sqrt(sum / static_cast<double>(n));
  return size;
}

// The norm whose output is this linear's input, by the names most families use.
std::string norm_before(const LinearSummary& linear) {
  const size_t dot = linear.module.rfind('.');
  if (dot == std::string::npos) return {};
  std::string_view parent(linear.module.data(), dot);
  const size_t layer_end = parent.find(".self_attn");
  const std::string_view p = linear.projection;
  if (layer_end != std::string_view::npos && parent.ends_with(".self_attn")) {
    const std::string layer(parent.substr(0, layer_end));
    if (p == "q_proj" || p == "k_proj" || p == "v_proj" || p == "qkv_proj" || p == "q_a_proj" ||
        p == "kv_a_proj_with_mqa" || p == "kv_proj")
      return layer + ".input_layernorm.weight";
    if (p == "q_b_proj") return fmt::format("{}.q_a_layernorm.weight", parent);
    if (p == "kv_b_proj") return fmt::format("{}.kv_a_layernorm.weight", parent);
    return {};
  }
  const size_t mlp = parent.find(".mlp");
  if (mlp == std::string_view::npos) return {};
  if (p == "gate_proj" || p == "up_proj" || p == "gate_up_proj" || p == "w1" || p == "w3")
    return fmt::format("{}.post_attention_layernorm.weight", parent.substr(0, mlp));
  return {};
}

// Families whose layers are RMSNorm(x) * w, then the projections; elsewhere a stored weight bounds
// nothing (1 + w, biases, norms that come after) or the norm is another one.
bool has_plain_pre_norm(const Checkpoint& checkpoint) {
  const JsonValue* type =
      checkpoint.config() != nullptr ? checkpoint.config()->find("model_type") : nullptr;
  if (type == nullptr || !type->is_string())
    return checkpoint.config() == nullptr;  // one file: by its names
  constexpr std::array<std::string_view, 14> kFamilies = {
      "llama",   "mistral",     "mixtral",     "qwen2",       "qwen2_moe", "qwen3",   "qwen3_moe",
      "smollm3", "deepseek_v2", "deepseek_v3", "deepseek_v4", "kimi_k2",   "gpt_oss", "glm4_moe"};
  return std::find(kFamilies.begin(), kFamilies.end(), type->as_string()) != kFamilies.end();
}

// C11. |RMSNorm(h) * w| <= sqrt(K) * max|w| always, and its amax is usually at least 2 rms(w).
void check_norm_bound(CheckContext& context) {
  if (!has_plain_pre_norm(context.checkpoint)) {
    const bool concerned = std::any_of(
        context.linears.begin(), context.linears.end(), [](const LinearSummary& linear) {
          return linear.input_scale && linear.scheme == Scheme::kNvfp4;
        });
    if (concerned)
      context.skipped.push_back(
          "C11, activation scales against their norms: the model's family is "
          "not one whose norms are known to bound its inputs");
    return;
  }
  for (const LinearSummary& linear : context.linears) {
    if (!linear.input_scale || linear.scheme != Scheme::kNvfp4) continue;
    const std::string name = norm_before(linear);
    const TensorRef norm = name.empty() ? TensorRef{} : context.checkpoint.tensor(name);
    const auto size = norm_size(norm);
    if (!size || norm.info->shape[0] != linear.k) continue;
    if (context.checkpoint.linear(linear.module)->pre_quant_scale) continue;
    const double amax = double{kNvfp4Range} * double{*linear.input_scale};
    const double bound = kBoundSlack * std::sqrt(static_cast<double>(linear.k)) * size->max;
    const double least = kLeastOfRms * size->rms;
    if (amax <= bound && amax >= least) continue;
    Finding f = about_input_scale(
        context, linear, "C11", "input-scale-beyond-norm",
        fmt::format("{}: its input scale stands for activations up to {:.4g}, but {} lets them be "
                    "{:.4g} to {:.4g}: {}",
                    quote_name(linear.module), amax, name, least, bound,
                    amax > bound ? "too large, or written in the other convention"
                                 : "too small, so activations are clipped"),
        "recalibrate the layer; `sextant explain input_scale=...` shows the arithmetic");
    f.expected =
        fmt::format("{:.4g} to {:.4g}", least / double{kNvfp4Range}, bound / double{kNvfp4Range});
    context.findings.add(std::move(f), amax > bound ? amax / bound : least / amax);
  }
}

// C12, of experts only: elsewhere an amax of exactly 0.5 is a number like any other.
void check_fallback(CheckContext& context) {
  for (const LinearSummary& linear : context.linears) {
    if (linear.scheme != Scheme::kNvfp4 || !linear.input_scale || !linear.expert) continue;
    if (*linear.input_scale != kFallback) continue;
    Finding f = about_input_scale(
        context, linear, "C12", "uncalibrated-expert",
        fmt::format("{}: its input scale is 0.5 / 2688, what ModelOpt writes for an expert that no "
                    "calibration token reached",
                    quote_name(linear.module)),
        "recalibrate with text that reaches it");
    f.expected = "a scale from calibration";
    context.findings.add(std::move(f));
  }
}

// C13, a projection of a layer at a time: gate, up and down have inputs of different size.
void check_expert_spread(CheckContext& context) {
  struct Extremes {
    const LinearSummary* low = nullptr;
    const LinearSummary* high = nullptr;
  };
  std::map<std::pair<int64_t, std::string>, Extremes> projections;
  for (const LinearSummary& linear : context.linears) {
    if (!linear.expert || !linear.layer || !linear.input_scale) continue;
    Extremes& e = projections[{*linear.layer, linear.projection}];
    if (e.low == nullptr || *linear.input_scale < *e.low->input_scale) e.low = &linear;
    if (e.high == nullptr || *linear.input_scale > *e.high->input_scale) e.high = &linear;
  }
  for (const auto& [key, e] : projections) {
    const double ratio = double{*e.high->input_scale} / double{*e.low->input_scale};
    if (!(ratio > kExpertSpread)) continue;
    Finding f = about_input_scale(
        context, *e.low, "C13", "expert-input-scales-spread",
        fmt::format("layer {}: the experts' {} input scales differ by a factor of {:.4g}; {} "
                    "has the smallest and was most likely hardly calibrated",
                    key.first, key.second, ratio, quote_name(e.low->module)),
        "recalibrate with more text, or set it to the largest of its layer");
    f.expected = "within a factor of 256";
    context.findings.add(std::move(f), ratio);
  }
}

}  // namespace

void check_activation_scales(CheckContext& context) {
  check_norm_bound(context);
  check_fallback(context);
  check_expert_spread(context);
}

}  // namespace sextant
