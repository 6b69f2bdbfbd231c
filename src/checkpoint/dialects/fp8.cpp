// FP8 weights (E4M3) with one scale a tensor, a row, or a block, in every dialect that has them
// (nvfp4.md 2.4). All scales are multipliers, whatever their names say. Which kind it is follows
// from the scale's shape; block sizes come from the config, else they are 128 x 128 with ragged
// edges. ModelOpt stores block scales as [N/128, 1, K/128, 1]: the same bytes in the same order.
#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "checkpoint/dialects/dialect.h"

namespace sextant {
namespace {

struct Block {
  int64_t n = 128;
  int64_t k = 128;
};

Block declared_block(const std::string& module, const QuantConfig& quant) {
  const auto sound = [](const DeclaredScheme& d) { return d.block_n > 0 && d.block_k > 0; };
  const auto it = quant.layers.find(module);
  if (it != quant.layers.end() && sound(it->second))
    return {it->second.block_n, it->second.block_k};
  if (sound(quant.whole)) return {quant.whole.block_n, quant.whole.block_k};
  for (const QuantGroup& group : quant.groups)
    if (sound(group.declared)) return {group.declared.block_n, group.declared.block_k};
  return {};
}

void add_shape_error(const TensorRef& scales, const LinearRecord& record, const Block& block,
                     DialectContext& context) {
  Finding f = finding_at(
      "C15", "scale-shape", Severity::kError, scales,
      fmt::format("{}: expected one scale, {} (one a row), or [{}, {}] (blocks of {} x {}) for a "
                  "weight of {} x {}, found {}",
                  tensor_text(scales), record.n, ceil_div(record.n, block.n),
                  ceil_div(record.k, block.k), block.n, block.k, record.n, record.k,
                  shape_text(*scales.info)),
      "export the checkpoint again, or correct the block size in its config");
  f.expected = fmt::format("[{}, {}]", ceil_div(record.n, block.n), ceil_div(record.k, block.k));
  context.findings.add(std::move(f));
}

// kFp8Block or kFp8Channel by shape; false after a finding.
bool read_scale_array(const TensorRef& scales, const Block& block, DialectContext& context,
                      LinearRecord& record) {
  std::vector<int64_t> shape = scales.info->shape;
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) shape = {shape[0], shape[2]};
  const DType dtype = scales.info->dtype;
  const std::vector<int64_t> blocks = {ceil_div(record.n, block.n), ceil_div(record.k, block.k)};
  const bool per_row =
      shape == std::vector<int64_t>{record.n} || shape == std::vector<int64_t>{record.n, 1};
  const bool per_block = shape == blocks;  // where it is both, both mean the same
  if (!per_block && !per_row) {
    add_shape_error(scales, record, block, context);
    return false;
  }
  const bool float_scale = dtype == DType::kF32 || dtype == DType::kBF16;
  const bool power_scale = dtype == DType::kF8E8M0 || dtype == DType::kU8;
  if (!float_scale && !(power_scale && per_block)) {
    context.findings.add(finding_at(
        "C15", "scale-dtype", Severity::kError, scales,
        fmt::format("{}: expected scales of dtype F32, BF16{}, found {}", tensor_text(scales),
                    per_block ? " or F8_E8M0" : "", shape_text(*scales.info)),
        "export the checkpoint again"));
    return false;
  }
  record.scheme = per_block ? Scheme::kFp8Block : Scheme::kFp8Channel;
  record.block_n = per_block ? block.n : 1;
  record.block_k = per_block ? block.k : record.k;
  record.scales = dtype == DType::kU8 ? relabeled(scales, DType::kF8E8M0, context) : scales;
  return true;
}

}  // namespace

Outcome read_fp8_linear(const ModuleTensors& tensors, DialectContext& context,
                        LinearRecord& record) {
  const TensorRef& weight = tensors[Part::kWeight];
  if (!weight || weight.info->dtype != DType::kF8E4M3 || weight.info->shape.size() != 2)
    return Outcome::kNotMine;
  record.n = weight.info->shape[0];
  record.k = weight.info->shape[1];
  record.weight = weight;
  if (record.n == 0 || record.k == 0) {
    context.findings.add(finding_at("C15", "empty-weight", Severity::kError, weight,
                                    fmt::format("{}: expected a matrix, found {}",
                                                tensor_text(weight), shape_text(*weight.info)),
                                    "export the checkpoint again"));
    return Outcome::kBroken;
  }
  const bool is_inverse_name = static_cast<bool>(tensors[Part::kWeightScaleInv]);
  const TensorRef& scales = is_inverse_name               ? tensors[Part::kWeightScaleInv]
                            : tensors[Part::kWeightScale] ? tensors[Part::kWeightScale]
                                                          : tensors[Part::kScale];
  if (!scales) {
    context.findings.add(missing_tensor("missing-block-scale", tensors, Part::kWeightScale,
                                        "FP8 weights mean nothing without their scale"));
    return Outcome::kBroken;
  }
  const Block block = declared_block(tensors.module, context.quant);
  // A single scale is a tensor's, unless the name (or a power-of-two dtype) belongs to blocks.
  const bool is_array = scales.info->n_elements() != 1 || is_inverse_name ||
                        tensors[Part::kScale] || scales.info->shape.size() == 4;
  if (is_array && scales.info->shape.size() <= 1 && record.n != scales.info->n_elements()) {
    // Three scalars of a fused q/k/v, as C025.
    if (scales.info->n_elements() > 3 || scales.info->n_elements() < 2) {
      add_shape_error(scales, record, block, context);
      return Outcome::kBroken;
    }
    record.scheme = Scheme::kFp8Tensor;
    record.block_k = record.k;
    if (!read_ranges(scales, false, context, record)) return Outcome::kBroken;
  } else if (is_array) {
    if (!read_scale_array(scales, block, context, record)) return Outcome::kBroken;
  } else {
    record.scheme = Scheme::kFp8Tensor;
    record.block_k = record.k;
    if (!read_ranges(scales, false, context, record)) return Outcome::kBroken;
  }
  read_input_scale(tensors[Part::kInputScale], false, context, record);
  return read_pre_quant_scale(tensors, context, record) ? Outcome::kRecord : Outcome::kBroken;
}

}  // namespace sextant
