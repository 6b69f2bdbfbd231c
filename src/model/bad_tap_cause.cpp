// Implements bad_tap_cause.h.
#include "model/bad_tap_cause.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "model/weights.h"
#include "quant/convert.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

constexpr std::array<std::string_view, 8> kCauseNames = {
    "weight", "scale", "global-scale", "input-scale", "bias", "norm", "embedding", "range"};

// Elements [begin, begin + n) of a stored tensor, as float32.
std::vector<float> values_at(const TensorRef& tensor, int64_t begin, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  const int64_t item_bytes = dtype_bits(tensor.info->dtype) / 8;
  if (!stored_to_f32(tensor.info->dtype, tensor.bytes().data() + begin * item_bytes, n, out.data()))
    out.clear();
  return out;
}

BadTapCause element_cause(CauseKind kind, const TensorRef& tensor, int64_t element,
                          std::vector<int64_t> index, float value, std::string_view what) {
  BadTapCause cause;
  cause.kind = kind;
  cause.tensor = tensor.info->name;
  cause.index = std::move(index);
  cause.file = tensor.file->path().filename().string();
  cause.value = value;
  if (tensor.converted == nullptr)
    cause.offset = tensor.info->begin + element * (dtype_bits(tensor.info->dtype) / 8);
  cause.message = cause.tensor;
  if (!cause.index.empty()) cause.message += fmt::format("[{}]", fmt::join(cause.index, ", "));
  cause.message += fmt::format(" is {}{}", value, what);
  if (cause.offset) cause.message += fmt::format(" (byte {} of {})", *cause.offset, cause.file);
  return cause;
}

// The first element of [begin, begin + n) that `is_bad`; columns: of the tensor, 0 for a vector.
template <class F>
std::optional<BadTapCause> first_in(CauseKind kind, const TensorRef& tensor, int64_t begin,
                                    int64_t n, int64_t columns, std::string_view what, F is_bad) {
  const std::vector<float> values = values_at(tensor, begin, n);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_bad(values[i])) continue;
    const int64_t at = begin + static_cast<int64_t>(i);
    std::vector<int64_t> index = {at};
    if (columns > 0) index = {at / columns, at % columns};
    return element_cause(kind, tensor, at, std::move(index), values[i], what);
  }
  return std::nullopt;
}

bool is_bad_value(float x) { return !std::isfinite(x); }

BadTapCause global_scale_cause(const GlobalScale& scale, std::string_view what) {
  std::vector<int64_t> index;
  if (scale.tensor.info->n_elements() > 1) index = {scale.element};
  return element_cause(CauseKind::kGlobalScale, scale.tensor, scale.element, std::move(index),
                       scale.range->stored, what);
}

std::string_view divisor_note(const ScaleRange& range) {
  return range.is_divisor ? ", a divisor" : "";
}

// What of a row of a linear is not finite.
std::optional<BadTapCause> bad_in_row(const Checkpoint& checkpoint, const LinearRecord& record,
                                      int64_t row, CauseKind weight_kind) {
  const auto global = global_scale_of(checkpoint, record, row);
  if (global && !(std::isfinite(global->range->g) && std::isfinite(global->range->stored)))
    return global_scale_cause(*global, divisor_note(*global->range));
  if (record.scales) {
    const int64_t columns = ceil_div(record.k, record.block_k);
    if (auto cause = first_in(CauseKind::kScale, record.scales, row / record.block_n * columns,
                              columns, columns, "", is_bad_value))
      return cause;
  }
  if (!has_codes(record.scheme))
    if (auto cause = first_in(weight_kind, record.weight, row * record.k, record.k, record.k, "",
                              is_bad_value))
      return cause;
  if (!global) return std::nullopt;
  // All finite, but their product is not.
  std::vector<float> values(static_cast<size_t>(record.k));
  dequantize_rows(record, row, 1, values.data());
  if (std::none_of(values.begin(), values.end(), is_bad_value)) return std::nullopt;
  return global_scale_cause(*global, ", and the weights it scales overflow float32");
}

std::optional<BadTapCause> norm_cause(const Checkpoint& checkpoint,
                                      const FirstBadTap::Found& found) {
  const TensorRef weight = checkpoint.tensor(norm_of_tap(found.name, found.layer));
  if (!weight || weight.info->n_elements() == 0) return std::nullopt;
  return first_in(CauseKind::kNorm, weight, found.col % weight.info->n_elements(), 1, 0, "",
                  is_bad_value);
}

BadTapCause range_cause(const FirstBadTap::Found& found) {
  BadTapCause cause;
  cause.value = found.value;
  const std::string_view tap = found.name;
  if (tap == "attn_out" || tap == "q_rope" || tap == "k_rope")
    cause.message =
        "its queries, keys and values are finite: they, or their products, are beyond the range of "
        "the arithmetic or of the cache's type";
  else if (tap == "hidden")
    cause.message = "both summands are finite: the residual stream is beyond the range of float32";
  else
    cause.message =
        "its inputs and parameters are finite: the result is beyond the range of float32, or an "
        "input beyond that of BF16";
  return cause;
}

// Under a scale for far larger inputs every block scale rounds to 0, and with it the block: up to
// 6 * 2^-10 * g, since S = e4m3(amax / (6 g)) and 2^-10 is E4M3's tie to 0 (nvfp4.md 4.2).
std::optional<BadTapCause> flushed_cause(const Checkpoint& checkpoint, const LinearRow& at,
                                         const LinearPolicy& policy) {
  const TensorRef scale = input_scale_of(checkpoint, at.stored_module);
  if (policy.act != Act::kA4Static || !scale || !at.record->input_scale) return std::nullopt;
  const std::vector<float> stored = values_at(scale, 0, 1);
  if (stored.empty()) return std::nullopt;
  const double g = double{*at.record->input_scale} * double{policy.headroom};
  return element_cause(
      CauseKind::kInputScale, scale, 0, {}, stored[0],
      fmt::format(", made for inputs up to {:.4g}: blocks of up to {:.4g} become zero",
                  double{kNvfp4Range} * g, 6 * 0x1p-10 * g));
}

}  // namespace

std::string_view cause_name(CauseKind kind) { return kCauseNames[static_cast<size_t>(kind)]; }

std::optional<GlobalScale> global_scale_of(const Checkpoint& checkpoint, const LinearRecord& record,
                                           int64_t row) {
  GlobalScale out;
  int64_t range_idx = 0;
  for (const ScaleRange& range : record.ranges) {
    if (row >= range.row_begin && row < range.row_end) {
      out.range = &range;
      break;
    }
    ++range_idx;
  }
  if (out.range == nullptr) return std::nullopt;
  for (const std::string_view name : checkpoint.tensors_of(record)) {
    const bool is_other = name == record.weight.info->name || name.find("input_") != name.npos ||
                          (record.scales && name == record.scales.info->name) ||
                          (record.pre_quant_scale && name == record.pre_quant_scale.info->name);
    if (!is_other) out.tensor = checkpoint.tensor(name);
  }
  if (!out.tensor) return std::nullopt;
  out.element = out.tensor.info->n_elements() > range_idx ? range_idx : 0;
  return out;
}

TensorRef input_scale_of(const Checkpoint& checkpoint, const std::string& stored_module) {
  const TensorRef multiplier = checkpoint.tensor(stored_module + ".input_scale");
  return multiplier ? multiplier : checkpoint.tensor(stored_module + ".input_global_scale");
}

std::string norm_of_tap(std::string_view tap, int64_t layer) {
  if (tap == "norm") return "model.norm.weight";
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  if (tap == "attn_in") return prefix + "input_layernorm.weight";
  if (tap == "mlp_in") return prefix + "post_attention_layernorm.weight";
  if (tap == "q_norm" || tap == "k_norm") return fmt::format("{}self_attn.{}.weight", prefix, tap);
  return {};
}

LinearRow find_linear_row(const Checkpoint& checkpoint, const ModelConfig& config,
                          std::string_view module, int64_t row) {
  LinearRow at;
  const auto take = [&](std::string stored, int64_t row_begin) {
    at.record = checkpoint.linear(stored);
    at.row = row_begin + row;
    at.stored_module = std::move(stored);
    if (at.record != nullptr && at.row >= at.record->n) at.record = nullptr;
  };
  const size_t dot = module.rfind('.');
  const std::string_view part = dot == module.npos ? module : module.substr(dot + 1);
  const std::string parent(module.substr(0, module.size() - part.size()));
  if (part == "lm_head" && config.tied_embeddings) {
    take("model.embed_tokens", 0);
    return at;
  }
  take(std::string(module), 0);
  if (at.record != nullptr) return at;
  const int64_t q = config.n_heads * config.head_dim;
  const int64_t kv = config.n_kv_heads * config.head_dim;
  if (part == "q_proj") take(parent + "qkv_proj", 0);
  if (part == "k_proj") take(parent + "qkv_proj", q);
  if (part == "v_proj") take(parent + "qkv_proj", q + kv);
  if (part == "gate_proj") take(parent + "gate_up_proj", 0);
  const bool of_expert = name_position(module).expert.has_value();
  if (part == "up_proj")
    take(parent + "gate_up_proj", of_expert ? config.d_ff_expert : config.d_ff);
  return at;
}

BadTapCause find_cause(const Checkpoint& checkpoint, const ModelConfig& config,
                       const FirstBadTap::Found& found, std::optional<int32_t> token) {
  std::optional<BadTapCause> cause;
  if (found.name == "embed") {
    const LinearRecord* table = checkpoint.linear("model.embed_tokens");
    if (table != nullptr && token && *token < table->n)
      cause = bad_in_row(checkpoint, *table, *token, CauseKind::kEmbedding);
  } else if (!found.module.empty() && found.name != "input") {
    const LinearRow at = find_linear_row(checkpoint, config, found.module, found.col);
    const TensorRef bias = checkpoint.tensor(at.stored_module + ".bias");
    if (bias && at.row < bias.info->n_elements())
      cause = first_in(CauseKind::kBias, bias, at.row, 1, 0, "", is_bad_value);
    if (!cause && at.record != nullptr)
      cause = bad_in_row(checkpoint, *at.record, at.row, CauseKind::kWeight);
  } else {
    cause = norm_cause(checkpoint, found);
  }
  return cause ? *std::move(cause) : range_cause(found);
}

BadTapCause find_dead_cause(const Checkpoint& checkpoint, const ModelConfig& config,
                            std::string_view module, const LinearPolicy& policy) {
  BadTapCause unknown;
  unknown.message =
      "its scales and weights are not zero: the products are below the range of "
      "float32";
  const LinearRow at = find_linear_row(checkpoint, config, module, 0);
  if (at.record == nullptr) return unknown;
  const LinearRecord& record = *at.record;
  const auto global = global_scale_of(checkpoint, record, at.row);
  if (global && std::abs(global->range->g) < 0x1p-126F)
    return global_scale_cause(*global, divisor_note(*global->range));
  if (record.scales) {
    const int64_t columns = ceil_div(record.k, record.block_k);
    const std::vector<float> scales =
        values_at(record.scales, at.row / record.block_n * columns, columns);
    if (std::all_of(scales.begin(), scales.end(), [](float s) { return s == 0.0F; }))
      return element_cause(CauseKind::kScale, record.scales, at.row / record.block_n * columns,
                           {at.row / record.block_n, 0}, 0.0F, ", as are the others of its row");
  }
  std::vector<float> values(static_cast<size_t>(record.k));
  dequantize_rows(record, at.row, 1, values.data());
  if (std::any_of(values.begin(), values.end(), [](float w) { return w != 0.0F; }))
    return flushed_cause(checkpoint, at, policy).value_or(unknown);
  BadTapCause cause;
  cause.kind = CauseKind::kWeight;
  cause.tensor = record.weight.info->name;
  cause.file = record.weight.file->path().filename().string();
  cause.value = 0;
  cause.message = cause.tensor + ": the weights are zero";
  return cause;
}

}  // namespace sextant
