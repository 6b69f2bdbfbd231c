// Names, which way the matrices of a stack lie, and its slices. Slices are views of the file: the
// stack's name, the slice's shape and bytes.
#include "checkpoint/dialects/expert_stack.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr std::string_view kExperts = "experts.";

// Projections that stacks exist of, with their partner in the other direction.
struct Projection {
  std::string_view name;
  bool is_down;              // from the inner width to hidden_size
  std::string_view partner;  // of the fused two only: [2I, H] against [H, I] tells which way
};
constexpr std::array<Projection, 8> kProjections = {{{"gate_up_proj", false, "down_proj"},
                                                     {"down_proj", true, "gate_up_proj"},
                                                     {"w13", false, "w2"},
                                                     {"w2", true, "w13"},
                                                     {"gate_proj", false, ""},
                                                     {"up_proj", false, ""},
                                                     {"w1", false, ""},
                                                     {"w3", false, ""}}};

// What follows the projection, after '.' or '_': ModelOpt and vLLM write gate_up_proj_weight_scale,
// gpt-oss gate_up_proj_blocks, modules gate_up_proj.weight.
constexpr std::array<std::pair<std::string_view, Part>, 16> kStackSuffixes = {
    {{"weight", Part::kWeight},
     {"blocks", Part::kWeight},
     {"weight_packed", Part::kWeightPacked},
     {"packed", Part::kWeightPacked},
     {"weight_scale", Part::kWeightScale},
     {"scale", Part::kWeightScale},
     {"scales", Part::kWeightScale},
     {"weight_scale_2", Part::kWeightScale2},
     {"scale_2", Part::kWeightScale2},
     {"weight_scale_inv", Part::kWeightScaleInv},
     {"scale_inv", Part::kWeightScaleInv},
     {"weight_global_scale", Part::kWeightGlobalScale},
     {"global_scale", Part::kWeightGlobalScale},
     {"input_scale", Part::kInputScale},
     {"input_global_scale", Part::kInputGlobalScale},
     {"pre_quant_scale", Part::kPreQuantScale}}};

const Projection& projection_of(const ExpertStack& stack) {
  return *std::find_if(kProjections.begin(), kProjections.end(),
                       [&](const Projection& p) { return p.name == stack.projection; });
}

const TensorRef& weight_of(const ExpertStack& stack) {
  const TensorRef& packed = stack.tensors[Part::kWeightPacked];
  return packed ? packed : stack.tensors[Part::kWeight];
}
const TensorRef& scales_of(const ExpertStack& stack) {
  const TensorRef& inverse = stack.tensors[Part::kWeightScaleInv];
  return inverse ? inverse : stack.tensors[Part::kWeightScale];
}

// Extents of one expert's matrix as the file has them, in weights; gpt-oss splits its rows into
// blocks, [N, K/32, 16].
struct StoredMatrix {
  int64_t first = 0;
  int64_t second = 0;   // elements of the dtype
  int64_t packing = 1;  // weights an element
};
std::optional<StoredMatrix> stored_matrix(const TensorInfo& info) {
  const auto& shape = info.shape;
  if (shape.size() < 3 || shape.size() > 4) return std::nullopt;
  StoredMatrix m{shape[1], shape[2],
                 is_codes_dtype(info.dtype) && info.dtype != DType::kF4 ? 2 : 1};
  if (shape.size() == 4) {
    const auto joined = checked_mul(shape[2], shape[3]);
    if (!joined || !is_codes_dtype(info.dtype)) return std::nullopt;
    m.second = *joined;
  }
  return m;
}

enum class Lie : uint8_t { kRows, kColumns, kUnknown, kNeither };

// By the block scales of 4-bit codes, which follow the rows.
Lie lie_by_scales(const StoredMatrix& m, const TensorInfo& weight, const TensorInfo& scales,
                  int64_t group) {
  if (scales.shape.size() != 3) return Lie::kNeither;
  const auto covers = [&](int64_t n_scales, int64_t extent) {
    const auto k = checked_mul(extent, m.packing);
    return k && n_scales == ceil_div(*k, group);
  };
  if (scales.shape[1] == m.first && covers(scales.shape[2], m.second)) return Lie::kRows;
  const bool blocks = weight.shape.size() == 4 || weight.dtype == DType::kF4;
  if (!blocks && scales.shape[2] == m.second && covers(scales.shape[1], m.first))
    return Lie::kColumns;
  return Lie::kNeither;
}

// Without block scales: by the other projection, [E, 2I, H] beside [E, H, I], or by hidden_size.
Lie lie_of_values(const ExpertStack& stack, const StoredMatrix& m, const ExpertStacks& all,
                  const JsonValue* config) {
  const Projection& projection = projection_of(stack);
  const auto partner = projection.partner.empty()
                           ? all.end()
                           : all.find(fmt::format("{}.{}", stack.experts, projection.partner));
  if (partner != all.end() && weight_of(partner->second)) {
    const TensorInfo& info = *weight_of(partner->second).info;
    const auto other = stored_matrix(info);
    if (other && other->packing == m.packing) {
      const StoredMatrix& up = projection.is_down ? *other : m;
      const StoredMatrix& down = projection.is_down ? m : *other;
      if (up.second == down.first && up.first % 2 == 0 && up.first / 2 == down.second)
        return Lie::kRows;
      if (up.first == down.second && up.second % 2 == 0 && up.second / 2 == down.first)
        return Lie::kColumns;
    }
  }
  const auto hidden = model_int(config, "hidden_size");
  if (!hidden || (m.first == *hidden) == (m.second == *hidden)) return Lie::kUnknown;
  return (m.second == *hidden) == projection.is_down ? Lie::kColumns : Lie::kRows;
}

void add_stack_error(const TensorRef& ref, const char* id, const char* slug, int64_t expert,
                     std::string message, std::string expected, DialectContext& context) {
  Finding f = finding_at(id, slug, Severity::kError, ref, std::move(message),
                         "export the checkpoint again");
  f.expert = expert;
  f.expected = std::move(expected);
  context.findings.add(std::move(f));
}

void add_missing(const ExpertStack& stack, const char* slug, std::string_view suffix,
                 std::string_view why, DialectContext& context) {
  const TensorRef& weight = weight_of(stack);
  Finding f =
      finding_at("C15", slug, Severity::kError, weight, "", "fetch or export the checkpoint again");
  f.tensor = fmt::format("{}_{}", stack.tensors.module, suffix);
  f.message = fmt::format("{} is missing: {}", quote_name(f.tensor), why);
  f.offset.reset();
  context.findings.add(std::move(f));
}

// Which way a stack of codes lies; nothing after a finding.
std::optional<bool> codes_lie_in_columns(const ExpertStack& stack, const StoredMatrix& m,
                                         DialectContext& context) {
  const TensorRef& weight = weight_of(stack);
  const TensorRef& scales = scales_of(stack);
  if (!scales) {
    add_missing(stack, "missing-block-scale", "weight_scale",
                "4-bit codes mean nothing without their block scales", context);
    return std::nullopt;
  }
  const int64_t n_experts = weight.info->shape[0];
  const bool powers = scales.info->dtype == DType::kU8 || scales.info->dtype == DType::kF8E8M0;
  const bool of_32 = declared_group_size(stack.tensors.module, context.quant) == 32;
  Lie lie = lie_by_scales(m, *weight.info, *scales.info, powers ? 32 : 16);
  if (lie == Lie::kNeither && of_32) lie = lie_by_scales(m, *weight.info, *scales.info, 32);
  if (lie == Lie::kRows || lie == Lie::kColumns) {
    if (scales.info->shape[0] == n_experts) {
      if (!powers && !stack.tensors[Part::kWeightScale2] &&
          !stack.tensors[Part::kWeightGlobalScale]) {
        add_missing(stack, "missing-global-scale", "weight_scale_2",
                    "every weight of the layer is multiplied by it, and no value can be assumed",
                    context);
        return std::nullopt;
      }
      return lie == Lie::kColumns;
    }
  }
  const int64_t group = powers ? 32 : 16;
  const auto k = checked_mul(m.second, m.packing).value_or(m.second);
  const auto k_first = checked_mul(m.first, m.packing).value_or(m.first);
  const std::string expected =
      fmt::format("[{}, {}, {}] or [{}, {}, {}]", n_experts, m.first, ceil_div(k, group), n_experts,
                  ceil_div(k_first, group), m.second);
  // The first expert that lacks scales: all of them where each lacks some.
  const bool fewer =
      (lie == Lie::kRows || lie == Lie::kColumns) && scales.info->shape[0] < n_experts;
  const int64_t expert = fewer ? scales.info->shape[0] : 0;
  add_stack_error(scales, "C17", "group-size", expert,
                  fmt::format("{}: {} experts of codes {} need scales {} (rows first, or columns "
                              "first), found {}: from expert {} on they do not fit",
                              tensor_text(scales), n_experts, shape_text(*weight.info), expected,
                              shape_text(*scales.info), expert),
                  expected, context);
  return std::nullopt;
}

// Which way a stack without block scales lies; nothing after a finding.
std::optional<bool> values_lie_in_columns(const ExpertStack& stack, const StoredMatrix& m,
                                          const ExpertStacks& all, DialectContext& context) {
  const Lie lie = lie_of_values(stack, m, all, context.config);
  if (lie != Lie::kUnknown) return lie == Lie::kColumns;
  const TensorRef& weight = weight_of(stack);
  Finding f = finding_at(
      "C15", "ambiguous-expert-order", Severity::kWarning, weight,
      fmt::format("{}: {} may be [experts, out, in] or [experts, in, out], and neither hidden_size "
                  "nor the projections beside it tell which: it is not read as linears",
                  tensor_text(weight), shape_text(*weight.info)),
      "give hidden_size in config.json");
  f.expected = fmt::format("hidden_size as one of the last two extents of {}", stack.projection);
  context.findings.add(std::move(f));
  return std::nullopt;
}

// Forms that would have to be rewritten, which is done for rows only.
void add_unread_columns(const TensorRef& ref, DialectContext& context) {
  context.findings.add(finding_at(
      "C15", "scale-dtype", Severity::kError, ref,
      fmt::format("{}: of experts stored with their columns first, only U8 codes with F8_E4M3 "
                  "scales of 16 or power-of-two scales of 32 columns are read",
                  tensor_text(ref)),
      "export the experts one by one"));
}

TensorRef slice_of(const TensorRef& ref, int64_t expert, std::vector<int64_t> shape,
                   DialectContext& context) {
  const int64_t n_bytes = ref.info->n_bytes() / ref.info->shape[0];
  TensorRef slice = relabeled(ref, ref.info->dtype, context);
  OwnedTensor& owned = *context.owned.back();
  owned.info.shape = std::move(shape);
  owned.info.begin = ref.info->begin + expert * n_bytes;
  owned.info.end = owned.info.begin + n_bytes;
  slice.expert = expert;
  return slice;
}

// Whether every expert has its own part of a tensor; nothing after a finding.
std::optional<bool> is_sliced(const TensorRef& ref, Part part, int64_t n_experts,
                              DialectContext& context) {
  const auto& shape = ref.info->shape;
  if (!shape.empty() && shape[0] == n_experts) return true;
  const bool vector = part == Part::kPreQuantScale && shape.size() == 1;
  if (ref.info->n_elements() == 1 || vector) return false;
  const int64_t expert = shape.empty() ? 0 : std::min(shape[0], n_experts - 1);
  add_stack_error(
      ref, "C15", "scale-shape", expert,
      fmt::format("{}: expected one value, or {} experts' in the first dimension, found "
                  "{}: expert {} has none",
                  tensor_text(ref), n_experts, shape_text(*ref.info), expert),
      fmt::format("[{}]", n_experts), context);
  return std::nullopt;
}

// The shape that an expert's part has in row order.
std::vector<int64_t> slice_shape(const TensorInfo& info, Part part, bool column_major) {
  std::vector<int64_t> shape(info.shape.begin() + 1, info.shape.end());
  const bool is_weight = part == Part::kWeight || part == Part::kWeightPacked;
  if (is_weight && shape.size() == 3) shape = {shape[0], shape[1] * shape[2]};
  const bool is_matrix = is_weight || part == Part::kWeightScale || part == Part::kWeightScaleInv;
  if (column_major && is_matrix && shape.size() == 2) std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

std::string StackPart::module() const { return fmt::format("{}.{}", experts, projection); }

std::optional<StackPart> stack_part(std::string_view name) {
  const size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) return std::nullopt;
  const std::string_view rest = name.substr(at + kExperts.size());
  for (const Projection& projection : kProjections) {
    if (!rest.starts_with(projection.name)) continue;
    StackPart part{name.substr(0, at + kExperts.size() - 1), projection.name, Part::kWeight};
    std::string_view suffix = rest.substr(projection.name.size());
    if (suffix.empty()) return part;
    if (suffix[0] != '.' && suffix[0] != '_') continue;
    suffix.remove_prefix(1);
    for (const auto& [known, is] : kStackSuffixes) {
      if (suffix != known) continue;
      part.part = is;
      return part;
    }
    return std::nullopt;
  }
  return std::nullopt;
}

ExpertStacks collect_stacks(const TensorMap& tensors) {
  ExpertStacks stacks;
  for (const auto& [name, ref] : tensors) {
    if (ref.info->shape.size() < 3) continue;
    if (const auto part = stack_part(name))
      stacks[part->module()] = {std::string(part->experts), std::string(part->projection), {}};
  }
  if (stacks.empty()) return stacks;
  for (const auto& [name, ref] : tensors) {
    const auto part = stack_part(name);
    const auto it = part ? stacks.find(part->module()) : stacks.end();
    if (it == stacks.end()) continue;
    it->second.tensors.module = it->first;
    TensorRef& place = it->second.tensors[part->part];
    if (!place) place = ref;
  }
  // Codes without "packed" in their name beside a divisor are compressed-tensors' all the same.
  for (auto& [module, stack] : stacks) {
    ModuleTensors& t = stack.tensors;
    if (t[Part::kWeight] && !t[Part::kWeightPacked] && t[Part::kWeightGlobalScale])
      std::swap(t[Part::kWeight], t[Part::kWeightPacked]);
  }
  return stacks;
}

std::optional<StackSlices> slice_stack(const ExpertStack& stack, const ExpertStacks& all,
                                       int64_t most, DialectContext& context) {
  const TensorRef& weight = weight_of(stack);
  const TensorInfo& info = *weight.info;
  const auto m = stored_matrix(info);
  const int64_t n_experts = info.shape.empty() ? 0 : info.shape[0];
  if (!m || info.n_elements() == 0 || n_experts > most) {
    add_stack_error(weight, "C15", "unsupported-weight", 0,
                    fmt::format("{}: expected a matrix for each of at most {} experts, found {}",
                                tensor_text(weight), most, shape_text(info)),
                    "[experts, rows, columns]", context);
    return std::nullopt;
  }
  const auto in_columns = is_codes_dtype(info.dtype)
                              ? codes_lie_in_columns(stack, *m, context)
                              : values_lie_in_columns(stack, *m, all, context);
  if (!in_columns) return std::nullopt;
  const TensorRef& scales = scales_of(stack);
  if (*in_columns && scales && scales.info->dtype == DType::kF32 && is_codes_dtype(info.dtype)) {
    add_unread_columns(scales, context);
    return std::nullopt;
  }
  StackSlices out;
  out.column_major = *in_columns;
  out.experts.resize(static_cast<size_t>(n_experts));
  for (size_t i = 0; i < kPartCount; ++i) {
    const TensorRef& ref = stack.tensors.parts[i];
    if (!ref) continue;
    const auto part = static_cast<Part>(i);
    const auto sliced = is_sliced(ref, part, n_experts, context);
    if (!sliced) return std::nullopt;
    for (int64_t e = 0; e < n_experts; ++e)
      out.experts[static_cast<size_t>(e)].parts[i] =
          *sliced ? slice_of(ref, e, slice_shape(*ref.info, part, out.column_major), context) : ref;
  }
  for (int64_t e = 0; e < n_experts; ++e)
    out.experts[static_cast<size_t>(e)].module =
        fmt::format("{}.{}.{}", stack.experts, e, stack.projection);
  return out;
}

bool finish_slice(LinearRecord& record, DialectContext& context) {
  for (TensorRef* ref : {&record.weight, &record.scales}) {
    if (!*ref || ref->info->shape.size() != 2) continue;
    if (ref->converted != nullptr || ref->info->dtype == DType::kF4) {
      add_unread_columns(*ref, context);
      return false;
    }
    const DType dtype = ref->info->dtype;
    *ref = relabeled(*ref, dtype, context);
    auto& shape = context.owned.back()->info.shape;
    std::swap(shape[0], shape[1]);
  }
  record.column_major = true;
  return true;
}

std::string stack_module(std::string_view slice_module) {
  const size_t last = slice_module.rfind('.');
  const size_t expert = slice_module.rfind('.', last - 1);
  return fmt::format("{}{}", slice_module.substr(0, expert), slice_module.substr(last));
}

}  // namespace sextant
