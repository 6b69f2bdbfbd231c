// ModelOpt's NVFP4 (nvfp4.md 2.2): weight U8 or F4, weight_scale E4M3, weight_scale_2 and
// input_scale multipliers, pre_quant_scale of the AWQ variants. Its FP8 is read in fp8.cpp.
#include <fmt/format.h>

#include "checkpoint/dialects/dialect.h"

namespace sextant {

Outcome read_modelopt_linear(const ModuleTensors& tensors, DialectContext& context,
                             LinearRecord& record) {
  const TensorRef& weight = tensors[Part::kWeight];
  const TensorRef& scales = tensors[Part::kWeightScale];
  const TensorRef& global = tensors[Part::kWeightScale2];
  if (!weight || !is_codes_dtype(weight.info->dtype)) return Outcome::kNotMine;
  // Codes with E8M0 scales are MXFP4; everything else that has ModelOpt's names is NVFP4.
  if (!global &&
      (!scales || scales.info->dtype == DType::kU8 || scales.info->dtype == DType::kF8E8M0))
    return Outcome::kNotMine;
  if (!scales) {
    context.findings.add(missing_tensor("missing-block-scale", tensors, Part::kWeightScale,
                                        "4-bit codes mean nothing without their block scales"));
    return Outcome::kBroken;
  }
  if (!read_nvfp4_blocks(tensors, weight, scales, context, record)) return Outcome::kBroken;
  if (!global) {
    context.findings.add(missing_tensor(
        "missing-global-scale", tensors, Part::kWeightScale2,
        "every weight of the layer is multiplied by it, and no value can be assumed"));
    return Outcome::kBroken;
  }
  if (!read_ranges(global, false, context, record)) return Outcome::kBroken;
  read_input_scale(tensors[Part::kInputScale], false, context, record);
  return read_pre_quant_scale(tensors, context, record) ? Outcome::kRecord : Outcome::kBroken;
}

}  // namespace sextant
