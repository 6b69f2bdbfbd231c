// compressed-tensors' packed linears (nvfp4.md 2.1): weight_packed U8, weight_scale E4M3, and the
// global scales as divisors G. The stored bits are kept beside the multiplier 1/G, because exact
// dequantization divides. MXFP4 in this dialect has weight_packed and UE8M0 scales per 32.
#include <fmt/format.h>

#include "base/checked.h"
#include "checkpoint/dialects/dialect.h"

namespace sextant {

Outcome read_compressed_tensors_linear(const ModuleTensors& tensors, DialectContext& context,
                                       LinearRecord& record) {
  const TensorRef& weight = tensors[Part::kWeightPacked];
  if (!weight) return Outcome::kNotMine;
  if (!is_codes_dtype(weight.info->dtype)) {
    context.findings.add(finding_at(
        "C15", "unsupported-weight", Severity::kError, weight,
        fmt::format("{}: expected packed 4-bit floats (U8), found {}; integer formats are not "
                    "supported",
                    tensor_text(weight), shape_text(*weight.info)),
        "take an NVFP4, MXFP4, FP8 or unquantized checkpoint of the model"));
    return Outcome::kBroken;
  }
  const TensorRef& scales = tensors[Part::kWeightScale];
  const TensorRef& global = tensors[Part::kWeightGlobalScale];
  if (!scales) {
    context.findings.add(missing_tensor("missing-block-scale", tensors, Part::kWeightScale,
                                        "4-bit codes mean nothing without their block scales"));
    return Outcome::kBroken;
  }
  if (!global && (scales.info->dtype == DType::kU8 || scales.info->dtype == DType::kF8E8M0))
    return Outcome::kNotMine;
  if (!read_nvfp4_blocks(tensors, weight, scales, context, record)) return Outcome::kBroken;
  if (!global) {
    context.findings.add(
        missing_tensor("missing-global-scale", tensors, Part::kWeightGlobalScale,
                       "every weight of the layer is divided by it, and no value can be assumed"));
    return Outcome::kBroken;
  }
  if (!read_ranges(global, true, context, record)) return Outcome::kBroken;
  read_input_scale(tensors[Part::kInputGlobalScale], true, context, record);
  return Outcome::kRecord;
}

}  // namespace sextant
