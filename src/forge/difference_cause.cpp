// Implements difference_cause.h.
#include "forge/difference_cause.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "base/checked.h"
#include "model/weights.h"
#include "quant/convert.h"
#include "quant/nvfp4.h"
#include "quant/ratio_name.h"

namespace sextant {
namespace {

// A bad row of weights among good ones is one whose rms ratio is out of these bounds.
constexpr double kLowRatio = 0.9;
constexpr double kHighRatio = 1.1;

// Some elements of a tensor, [begin, begin + n), in rows of `columns`; 0 for a vector or a scalar.
struct Elements {
  TensorRef tensor;
  int64_t begin = 0;
  int64_t n = 0;
  int64_t columns = 0;
  std::string kind;
};

// What a linear's rows [row, row + n_rows) are computed with.
std::vector<Elements> parameters_of(const Checkpoint& checkpoint, const LinearRow& at,
                                    int64_t n_rows) {
  std::vector<Elements> out;
  const LinearRecord& record = *at.record;
  const int64_t k = has_codes(record.scheme) ? ceil_div(record.k, 2) : record.k;
  out.push_back({record.weight, at.row * k, n_rows * k, k, "weight"});
  if (record.scales) {
    const int64_t columns = ceil_div(record.k, record.block_k);
    const int64_t first = at.row / record.block_n;
    const int64_t last = (at.row + n_rows - 1) / record.block_n;
    out.push_back({record.scales, first * columns, (last - first + 1) * columns, columns, "scale"});
  }
  for (const std::string_view name : checkpoint.tensors_of(record)) {
    const TensorRef tensor = checkpoint.tensor(name);
    if (!tensor || name == record.weight.info->name ||
        (record.scales && name == record.scales.info->name))
      continue;
    const bool is_input = name.find("input_") != std::string::npos;
    out.push_back(
        {tensor, 0, tensor.info->n_elements(), 0, is_input ? "input-scale" : "global-scale"});
  }
  if (const TensorRef bias = checkpoint.tensor(at.stored_module + ".bias");
      bias && at.row + n_rows <= bias.info->n_elements())
    out.push_back({bias, at.row, n_rows, 0, "bias"});
  return out;
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string index_text(const std::vector<int64_t>& index) {
  return index.empty() ? "" : fmt::format("[{}]", fmt::join(index, ", "));
}

// Codes are two values a byte, which its neighbors in other tensors scale.
bool is_codes(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kF4;
}

// One pair of tensors, byte for byte.
struct ElementDifference {
  int64_t n_different = 0;
  int64_t first = 0;  // of the elements that were compared
  double value_a = 0;
  double value_b = 0;
  bool has_values = false;
  std::string ratio;  // where all that differ are one clean factor apart
};

std::optional<ElementDifference> compare_elements(const Elements& a, const Elements& b) {
  const DType dtype = b.tensor.info->dtype;
  const int64_t bytes = is_codes(dtype) ? 1 : dtype_bits(dtype) / 8;
  const std::byte* in_a = a.tensor.bytes().data() + a.begin * bytes;
  const std::byte* in_b = b.tensor.bytes().data() + b.begin * bytes;
  ElementDifference out;
  double least = 0;
  double most = 0;
  for (int64_t i = 0; i < b.n; ++i) {
    if (std::equal(in_a + i * bytes, in_a + (i + 1) * bytes, in_b + i * bytes)) continue;
    float value_a = 0;
    float value_b = 0;
    const bool known = !is_codes(dtype) && stored_to_f32(dtype, in_a + i * bytes, 1, &value_a) &&
                       stored_to_f32(dtype, in_b + i * bytes, 1, &value_b);
    const double ratio = static_cast<double>(value_b) / static_cast<double>(value_a);
    if (out.n_different++ == 0) {
      out.first = i;
      out.has_values = known;
      out.value_a = value_a;
      out.value_b = value_b;
      least = most = ratio;
    }
    // A NaN stays: no ratio is named.
    if (!(ratio >= least) && !std::isnan(least)) least = ratio;
    if (!(ratio <= most) && !std::isnan(most)) most = ratio;
  }
  if (out.n_different == 0) return std::nullopt;
  const std::string name = ratio_name(least, {});
  if (out.has_values && name == ratio_name(most, {})) out.ratio = name;
  return out;
}

std::string element_text(const Elements& b, const ElementDifference& d,
                         const std::vector<int64_t>& index) {
  std::string text = b.tensor.info->name + index_text(index);
  text += d.has_values ? fmt::format(" is {:g}, A has {:g}", d.value_b, d.value_a) : " differs";
  if (!d.ratio.empty()) text += fmt::format(": {} times", d.ratio);
  return text + fmt::format(" ({} of {} {} differ)", d.n_different, b.n,
                            d.has_values ? "elements" : "bytes");
}

// Adds a pair that differs to the cause.
void note_pair(const Elements& a, const Elements& b, DifferenceCause& cause) {
  const auto difference = compare_elements(a, b);
  if (!difference) return;
  const int64_t element = b.begin + difference->first;
  std::vector<int64_t> index;
  if (b.columns > 0)
    index = {element / b.columns, element % b.columns};
  else if (b.tensor.info->n_elements() > 1)
    index = {element};
  const std::string text = element_text(b, *difference, index);
  if (cause.tensors.empty()) {
    cause.kind = b.kind;
    cause.index = std::move(index);
    cause.ratio = difference->ratio;
    if (difference->has_values) {
      cause.value_a = difference->value_a;
      cause.value_b = difference->value_b;
    }
  }
  cause.tensors.push_back(b.tensor.info->name);
  cause.message += (cause.message.empty() ? "" : "; ") + text;
}

bool is_comparable(const Elements& a, const Elements& b) {
  return a.kind == b.kind && a.n == b.n && a.tensor.info->dtype == b.tensor.info->dtype &&
         (a.kind == "weight" || a.kind == "scale" ||
          last_part(a.tensor.info->name) == last_part(b.tensor.info->name));
}

// Two forms of one weight: which scale is off by a factor, if any is.
void note_values(const Checkpoint& checkpoint_b, const LinearRow& a, const LinearRow& b,
                 int64_t n_rows, ThreadPool& pool, DifferenceCause& cause) {
  const std::vector<DifferenceOfRows> rows = compare_weights(a, b, n_rows, pool);
  DifferenceOfRows all;
  for (const DifferenceOfRows& row : rows) all.add(row);
  const auto is_off = [](const DifferenceOfRows& row) {
    return !(row.rms_ratio() >= kLowRatio && row.rms_ratio() <= kHighRatio);
  };
  const auto n_off = static_cast<int64_t>(std::count_if(rows.begin(), rows.end(), is_off));
  const LinearRecord& record = *b.record;
  const auto global = global_scale_of(checkpoint_b, record, b.row);
  const std::string kinds =
      fmt::format("{}, A has {}", scheme_name(record.scheme), scheme_name(a.record->scheme));
  if (n_off == 0) {
    cause.kind = "weight";
    cause.tensors.push_back(record.weight.info->name);
    const double allowed = explained_by_formats(a.record->scheme, record.scheme);
    const double error = all.relative_l2();
    cause.message = fmt::format(
        "{} is {}: its values are {} (relative L2 {:.3g})", record.weight.info->name, kinds,
        error * error > allowed ? "further from A's than that explains"
                                : "as close to A's as that explains, and the inputs of "
                                  "this text make more of the error",
        error);
    return;
  }
  const auto first = std::find_if(rows.begin(), rows.end(), is_off);
  const int64_t row = b.row + (first - rows.begin());
  const bool is_global = n_off * 2 > n_rows && global.has_value();
  std::optional<float> g;
  if (global) g = global->range->g;
  const double ratio = is_global ? all.rms_ratio() : first->rms_ratio();
  cause.ratio = ratio_name(ratio, g);
  const std::string times = cause.ratio.empty() ? fmt::format("{:.4g}", ratio) : cause.ratio;
  if (is_global) {
    cause.kind = "global-scale";
    cause.tensors.push_back(global->tensor.info->name);
    cause.value_b = global->range->stored;
    cause.message = fmt::format("{} is {:g}: the weights it scales ({}) are {} times A's (rms)",
                                global->tensor.info->name, global->range->stored, kinds, times);
    return;
  }
  const TensorRef& tensor = record.scales ? record.scales : record.weight;
  cause.kind = record.scales ? "scale" : "weight";
  cause.index = {record.scales ? row / record.block_n : row};
  cause.tensors.push_back(tensor.info->name);
  if (record.scales) cause.tensors.push_back(record.weight.info->name);
  cause.message = fmt::format("row {} of {} ({}) is {} times A's (rms), as are {} of {} rows", row,
                              tensor.info->name, kinds, times, n_off, n_rows);
}

// Weights that are not to blame leave the input: how far it goes beyond the scale that it is
// quantized by is what trace measures.
void note_input_scale(const ComparedModel& a, const ComparedModel& b, const ComparedTap& tap,
                      const LinearRow& at, DifferenceCause& cause) {
  const LinearPolicy policy = b.model.linear_policy(tap.module);
  const TensorRef scale = input_scale_of(b.checkpoint, at.stored_module);
  if (policy.act != Act::kA4Static || !scale || !at.record->input_scale ||
      is_same_arithmetic(a.model.linear_policy(tap.module), policy))
    return;
  cause.tensors.push_back(scale.info->name);
  cause.message +=
      fmt::format(", or go beyond {:.4g}, the amax that {} is made for (trace has r)",
                  double{kNvfp4Range} * double{*at.record->input_scale} * double{policy.headroom},
                  scale.info->name);
}

// Of a tap without parameters, or whose parameters are the same: what else it depends on.
DifferenceCause other_cause(const ComparedModel& a, const ComparedModel& b,
                            const ComparedTap& tap) {
  DifferenceCause cause;
  if (!tap.module.empty() &&
      !is_same_arithmetic(a.model.linear_policy(tap.module), b.model.linear_policy(tap.module))) {
    cause.kind = "policy";
    cause.message = fmt::format("the tensors of {} are the same, its policies are not", tap.module);
    return cause;
  }
  const auto config = [&](const char* field) {
    cause.kind = "config";
    cause.message = fmt::format("no tensor differs there: {} of config.json does", field);
  };
  const ModelConfig& of_a = a.model.config();
  const ModelConfig& of_b = b.model.config();
  if (!norm_of_tap(tap.name, tap.layer).empty() && of_a.rms_eps != of_b.rms_eps) {
    config("rms_norm_eps");
  } else if (tap.name == "q_rope" || tap.name == "k_rope") {
    config("rope_theta or rope_scaling");
  } else if (tap.name == "attn_out" && of_a.window != of_b.window) {
    config("sliding_window");
  } else if (tap.name == "router_weights" && of_a.norm_top_k != of_b.norm_top_k) {
    config("norm_topk_prob");
  } else {
    cause.kind = "unknown";
    cause.message =
        "its parameters are the same: the error comes from the taps before it, and grew here";
  }
  return cause;
}

DifferenceCause of_bad(const BadTapCause& bad, char side) {
  DifferenceCause cause;
  cause.kind = cause_name(bad.kind);
  cause.side = side;
  if (!bad.tensor.empty()) cause.tensors.push_back(bad.tensor);
  cause.index = bad.index;
  (side == 'a' ? cause.value_a : cause.value_b) = bad.value;
  cause.message = bad.message;
  return cause;
}

}  // namespace

DifferenceCause find_difference_cause(const ComparedModel& a, const ComparedModel& b,
                                      const ComparedTap& tap, std::span<const int32_t> ids,
                                      ThreadPool& pool) {
  if (tap.first_bad) {
    const TapElement& at = *tap.first_bad;
    const bool is_a = !std::isfinite(at.a);
    const ComparedModel& side = is_a ? a : b;
    FirstBadTap::Found found{tap.name,   tap.layer,    tap.module, at.row,
                             tap.n_rows, std::nullopt, at.column,  is_a ? at.a : at.b};
    return of_bad(find_cause(side.checkpoint, side.model.config(), found,
                             ids[static_cast<size_t>(at.position)]),
                  is_a ? 'a' : 'b');
  }
  if (!tap.module.empty() && tap.difference.b2 == 0 && tap.difference.a2 > 0)
    return of_bad(find_dead_cause(b.checkpoint, b.model.config(), tap.module,
                                  b.model.linear_policy(tap.module)),
                  'b');

  DifferenceCause cause;
  const bool is_table = tap.name == "embed";
  if (is_table || !tap.module.empty()) {
    const std::string module = is_table ? "model.embed_tokens" : tap.module;
    const int64_t row = is_table && tap.first_different
                            ? int64_t{ids[static_cast<size_t>(tap.first_different->position)]}
                            : 0;
    const int64_t n_rows = is_table ? 1 : tap.n_columns;
    const LinearRow at_a = find_linear_row(a.checkpoint, a.model.config(), module, row);
    const LinearRow at_b = find_linear_row(b.checkpoint, b.model.config(), module, row);
    if (at_a.record == nullptr || at_b.record == nullptr) return other_cause(a, b, tap);
    const bool is_one_form = at_a.record->scheme == at_b.record->scheme;
    const auto of_a = parameters_of(a.checkpoint, at_a, n_rows);
    for (Elements& mine : parameters_of(b.checkpoint, at_b, n_rows)) {
      if (!is_one_form && mine.kind != "bias") continue;
      if (is_table && mine.kind == "weight") mine.kind = "embedding";
      for (Elements theirs : of_a) {
        if (is_table && theirs.kind == "weight") theirs.kind = "embedding";
        if (is_comparable(theirs, mine)) note_pair(theirs, mine, cause);
      }
    }
    if (cause.tensors.empty() && !is_one_form) {
      note_values(b.checkpoint, at_a, at_b, n_rows, pool, cause);
      if (cause.kind == "weight") note_input_scale(a, b, tap, at_b, cause);
    }
  } else if (const std::string norm = norm_of_tap(tap.name, tap.layer); !norm.empty()) {
    const TensorRef in_a = a.checkpoint.tensor(norm);
    const TensorRef in_b = b.checkpoint.tensor(norm);
    if (in_a && in_b && in_a.info->n_elements() == in_b.info->n_elements() &&
        in_a.info->dtype == in_b.info->dtype) {
      const int64_t n = in_b.info->n_elements();
      note_pair({in_a, 0, n, 0, "norm"}, {in_b, 0, n, 0, "norm"}, cause);
    }
  }
  return cause.tensors.empty() ? other_cause(a, b, tap) : cause;
}

}  // namespace sextant
