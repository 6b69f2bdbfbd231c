// Shared reading of scalars and ranges.
#include "checkpoint/dialects/dialect.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "io/quote.h"
#include "quant/bf16.h"

namespace sextant {
namespace {

constexpr float kMinNormal = 0x1p-126F;

// A multiplier that can be computed with: finite, positive, and its reciprocal too. Kernels flush
// denormals, so one below 2^-126 is as bad as zero (nvfp4.md 3.2, C3).
bool is_sound_scale(float value) {
  return std::isfinite(value) && value >= kMinNormal && std::isfinite(1.0F / value) &&
         1.0F / value >= kMinNormal;
}

std::optional<float> scalar_at(const TensorInfo& info, const std::byte* bytes, size_t i) {
  if (info.dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * i, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, bytes + 2 * i, 2);
  if (info.dtype == DType::kBF16) return bf16_to_f32(half);
  if (info.dtype == DType::kF16) return fp16_to_f32(half);
  return std::nullopt;
}

// How the rows of a fused linear with one scale a part are split: by head counts or by the width of
// the feed-forward layer. Nothing where the config does not say (case C025).
std::optional<std::vector<int64_t>> documented_split(const LinearRecord& record, size_t n_parts,
                                                     bool of_stack, const JsonValue* config) {
  if (n_parts == 3) {
    const auto heads = model_int(config, "num_attention_heads");
    const auto kv_heads = model_int(config, "num_key_value_heads");
    auto head_dim = model_int(config, "head_dim");
    const auto hidden = model_int(config, "hidden_size");
    if (!heads || *heads <= 0) return std::nullopt;
    if (!head_dim && hidden && *hidden % *heads == 0) head_dim = *hidden / *heads;
    if (!head_dim || *head_dim <= 0) return std::nullopt;
    const auto q = checked_mul(*heads, *head_dim);
    const auto kv = checked_mul(kv_heads.value_or(*heads), *head_dim);
    if (!q || !kv || *kv <= 0 || *q > record.n || *kv > record.n || *q + 2 * *kv != record.n)
      return std::nullopt;
    return std::vector<int64_t>{*q, *kv, *kv};
  }
  // A stack's [E, 2] are the scales of gate and up, whose rows are halves, but for gpt-oss, where
  // they alternate.
  if (n_parts == 2 && of_stack) {
    const JsonValue* type = find_model_field(config, "model_type");
    const bool alternate = type != nullptr && type->is_string() && type->as_string() == "gpt_oss";
    if (alternate || record.n % 2 != 0) return std::nullopt;
    return std::vector<int64_t>{record.n / 2, record.n / 2};
  }
  if (n_parts == 2) {
    for (const char* field :
         {"intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
      const auto width = model_int(config, field);
      if (width && *width > 0 && *width <= record.n && 2 * *width == record.n)
        return std::vector<int64_t>{*width, *width};
    }
  }
  return std::nullopt;
}

}  // namespace

Finding finding_at(std::string id, std::string slug, Severity severity, const TensorRef& ref,
                   std::string message, std::string remedy) {
  Finding f;
  f.id = std::move(id);
  f.slug = std::move(slug);
  f.severity = severity;
  f.message = std::move(message);
  f.remedy = std::move(remedy);
  if (ref) {
    f.tensor = ref.info->name;
    f.file = ref.file->path().string();
    if (ref.expert >= 0) {
      f.expert = ref.expert;
      f.instances = {fmt::format("{}[{}]", f.tensor, ref.expert)};
    }
    if (ref.converted == nullptr) f.offset = ref.info->begin;
  }
  return f;
}

Finding missing_tensor(std::string slug, const ModuleTensors& tensors, Part part,
                       std::string_view why) {
  Finding f;
  f.id = "C15";
  f.slug = std::move(slug);
  f.severity = Severity::kError;
  f.tensor = fmt::format("{}.{}", tensors.module, part_name(part));
  f.message = fmt::format("{} is missing: {}", quote_name(f.tensor), why);
  f.remedy = "fetch or export the checkpoint again";
  for (const TensorRef& ref : tensors.parts)
    if (ref && f.file.empty()) f.file = ref.file->path().string();
  return f;
}

std::string tensor_text(const TensorRef& ref) {
  if (ref.expert < 0) return quote_name(ref.info->name);
  return fmt::format("{} (expert {})", quote_name(ref.info->name), ref.expert);
}

std::string value_text(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.9g}", value);
}

std::string shape_text(const TensorInfo& info) {
  return fmt::format("{} [{}]", dtype_name(info.dtype), fmt::join(info.shape, ", "));
}

bool is_codes_dtype(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kF4;
}

std::optional<std::pair<int64_t, int64_t>> codes_shape(const TensorInfo& info) {
  if (info.shape.size() != 2) return std::nullopt;
  if (info.dtype == DType::kF4) {
    if (info.shape[1] % 2 != 0) return std::nullopt;
    return std::pair{info.shape[0], info.shape[1]};
  }
  const auto k = checked_mul(info.shape[1], 2);
  if (!k) return std::nullopt;
  return std::pair{info.shape[0], *k};
}

std::vector<float> read_scalars(const TensorRef& ref, DialectContext& context) {
  const TensorInfo& info = *ref.info;
  constexpr int64_t kMaxParts = 64;
  const int64_t n = info.n_elements();
  const bool vector_like =
      std::count_if(info.shape.begin(), info.shape.end(), [](int64_t e) { return e != 1; }) <= 1;
  const bool known =
      info.dtype == DType::kF32 || info.dtype == DType::kBF16 || info.dtype == DType::kF16;
  if (n < 1 || n > kMaxParts || !vector_like || !known) {
    context.findings.add(finding_at(
        "C15", known ? "scale-shape" : "scale-dtype", Severity::kError, ref,
        fmt::format("{}: expected one F32 value (or one a part of a fused linear), found {}",
                    tensor_text(ref), shape_text(info)),
        "export the checkpoint again"));
    return {};
  }
  if (info.dtype != DType::kF32 && context.reported.emplace(&info, size_t{0}).second)
    context.findings.add(finding_at(
        "C15", "bf16-scalar-scale", Severity::kWarning, ref,
        fmt::format("{} is stored as {}, expected F32: its value is used as it is, with fewer bits "
                    "than the producer computed",
                    tensor_text(ref), dtype_name(info.dtype)),
        "export the scalar as F32"));
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(*scalar_at(info, ref.bytes().data(), static_cast<size_t>(i)));
  return values;
}

bool read_ranges(const TensorRef& ref, bool is_divisor, DialectContext& context,
                 LinearRecord& record) {
  std::vector<float> values = read_scalars(ref, context);
  if (values.empty()) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_sound_scale(values[i]) || !context.reported.emplace(ref.info, i + 1).second) continue;
    Finding f =
        finding_at("C3", "bad-scalar-scale", Severity::kError, ref,
                   fmt::format("{} is {}: expected a finite positive normal number",
                               tensor_text(ref), value_text(values[i])),
                   "fetch or export the checkpoint again; this value scales the whole layer");
    f.value = values[i];
    if (values.size() > 1) f.index = {static_cast<int64_t>(i)};
    f.expected = "finite, at least 2^-126";
    context.findings.add(std::move(f));
  }
  const auto as_range = [&](int64_t begin, int64_t end, float value) {
    return ScaleRange{begin, end, is_divisor ? 1.0F / value : value, value, is_divisor};
  };
  const bool equal =
      std::all_of(values.begin(), values.end(), [&](float value) { return value == values[0]; });
  if (values.size() == 1 || equal) {
    record.ranges = {as_range(0, record.n, values[0])};
    return true;
  }
  const auto split = documented_split(record, values.size(), ref.expert >= 0, context.config);
  if (!split) {
    context.findings.add(finding_at(
        "C15", "ambiguous-scale-split", Severity::kError, ref,
        fmt::format("{} holds {} scales for {} rows, and the config does not say which rows belong "
                    "to which (head counts or widths that add up to {})",
                    tensor_text(ref), values.size(), record.n, record.n),
        "add the head counts to config.json, or store the parts as linears of their own"));
    return false;
  }
  int64_t row = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    record.ranges.push_back(as_range(row, row + (*split)[i], values[i]));
    row += (*split)[i];
  }
  return true;
}

void read_input_scale(const TensorRef& ref, bool is_divisor, DialectContext& context,
                      LinearRecord& record) {
  if (!ref) return;
  const std::vector<float> values = read_scalars(ref, context);
  bool sound = !values.empty();
  float multiplier = 0;
  float divisor = 0;
  for (const float value : values) {
    // One activation tensor feeds all parts of a fused linear: the largest amax serves them all.
    if (const float g = is_divisor ? 1.0F / value : value;
        is_sound_scale(value) && g > multiplier) {
      multiplier = g;
      divisor = is_divisor ? value : 1.0F / value;
    }
    if (is_sound_scale(value) || !sound) continue;
    sound = false;
    if (!context.reported.emplace(ref.info, size_t{1}).second) continue;
    Finding f = finding_at(
        "C3", "bad-scalar-scale", Severity::kError, ref,
        fmt::format("{} is {}: expected a finite positive normal number (zero and infinity mean "
                    "that the layer was never calibrated)",
                    tensor_text(ref), value_text(value)),
        "recalibrate, or run with activations that are not quantized");
    f.value = value;
    f.expected = "finite, at least 2^-126";
    f.activation_only = true;
    context.findings.add(std::move(f));
  }
  if (!sound) return;
  record.input_scale = multiplier;
  record.input_divisor = divisor;
}

bool read_pre_quant_scale(const ModuleTensors& tensors, DialectContext& context,
                          LinearRecord& record) {
  const TensorRef& ref = tensors[Part::kPreQuantScale];
  if (!ref) return true;
  const DType dtype = ref.info->dtype;
  const bool is_float = dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  if (!is_float || ref.info->n_elements() != record.k) {
    context.findings.add(
        finding_at("C19", "pre-quant-scale", Severity::kError, ref,
                   fmt::format("{}: expected {} floating-point values, one a column, found {}",
                               tensor_text(ref), record.k, shape_text(*ref.info)),
                   "export the checkpoint again"));
    return false;
  }
  record.pre_quant_scale = ref;
  return true;
}

TensorRef relabeled(const TensorRef& ref, DType dtype, DialectContext& context) {
  context.owned.push_back(std::make_unique<OwnedTensor>());
  OwnedTensor& owned = *context.owned.back();
  owned.info = *ref.info;
  owned.info.dtype = dtype;
  return TensorRef{ref.file, &owned.info, ref.converted, ref.expert};
}

TensorRef converted(const TensorRef& ref, DType dtype, std::vector<int64_t> shape,
                    std::vector<std::byte> data, DialectContext& context) {
  context.owned.push_back(std::make_unique<OwnedTensor>());
  OwnedTensor& owned = *context.owned.back();
  owned.info.name = ref.info->name;
  owned.info.dtype = dtype;
  owned.info.shape = std::move(shape);
  owned.info.begin = 0;
  owned.info.end = static_cast<int64_t>(data.size());
  owned.data = std::move(data);
  return TensorRef{ref.file, &owned.info, owned.data.data(), ref.expert};
}

}  // namespace sextant
