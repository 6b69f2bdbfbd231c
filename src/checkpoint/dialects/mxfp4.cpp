// MXFP4 linears: E2M1 codes with one UE8M0 byte per 32 columns and no global scale, under the names
// of ModelOpt (weight, weight_scale), compressed-tensors (weight_packed, weight_scale) and DeepSeek
// (weight I8, scale). The scale's dtype may be U8 or F8_E8M0: the same byte (case C038).
#include <fmt/format.h>

#include "base/checked.h"
#include "checkpoint/dialects/dialect.h"

namespace sextant {

Outcome read_mxfp4_linear(const ModuleTensors& tensors, DialectContext& context,
                          LinearRecord& record) {
  const TensorRef& weight =
      tensors[Part::kWeightPacked] ? tensors[Part::kWeightPacked] : tensors[Part::kWeight];
  const TensorRef& scales =
      tensors[Part::kWeightScale] ? tensors[Part::kWeightScale] : tensors[Part::kScale];
  if (!weight || !is_codes_dtype(weight.info->dtype) || !scales) return Outcome::kNotMine;
  if (scales.info->dtype != DType::kU8 && scales.info->dtype != DType::kF8E8M0)
    return Outcome::kNotMine;
  const auto shape = codes_shape(*weight.info);
  if (!shape || shape->first == 0 || shape->second == 0) {
    context.findings.add(finding_at("C15", "empty-weight", Severity::kError, weight,
                                    fmt::format("{}: expected a matrix of codes, found {}",
                                                tensor_text(weight), shape_text(*weight.info)),
                                    "export the checkpoint again"));
    return Outcome::kBroken;
  }
  const auto [n, k] = *shape;
  if (k % 32 != 0 || scales.info->shape != std::vector<int64_t>{n, k / 32}) {
    Finding f = finding_at(
        "C17", "group-size", Severity::kError, scales,
        fmt::format(
            "{}: K is {} ({} bytes a row), so {} groups of 32 are expected, shape [{}, {}], "
            "found {}",
            tensor_text(scales), k, k / 2, ceil_div(k, 32), n, ceil_div(k, 32),
            shape_text(*scales.info)),
        "export the checkpoint again");
    f.expected = fmt::format("[{}, {}]", n, ceil_div(k, 32));
    context.findings.add(std::move(f));
    return Outcome::kBroken;
  }
  record.scheme = Scheme::kMxfp4;
  record.n = n;
  record.k = k;
  record.weight = weight;
  record.scales =
      scales.info->dtype == DType::kU8 ? relabeled(scales, DType::kF8E8M0, context) : scales;
  record.block_n = 1;
  record.block_k = 32;
  return Outcome::kRecord;
}

}  // namespace sextant
