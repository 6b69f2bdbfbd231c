// Unquantized two-dimensional weights: F32, F16, BF16. Anything else two-dimensional that looks
// like a weight but is of no known kind is an error, never a guess.
#include <fmt/format.h>

#include "checkpoint/dialects/dialect.h"

namespace sextant {
namespace {

std::optional<Scheme> plain_scheme(DType dtype) {
  switch (dtype) {
    case DType::kF32: return Scheme::kF32;
    case DType::kF16: return Scheme::kF16;
    case DType::kBF16: return Scheme::kBf16;
    default: return std::nullopt;
  }
}

}  // namespace

Outcome read_plain_linear(const ModuleTensors& tensors, DialectContext& context,
                          LinearRecord& record) {
  const TensorRef& weight = tensors[Part::kWeight];
  if (!weight || weight.info->shape.size() != 2) return Outcome::kNotMine;
  const auto scheme = plain_scheme(weight.info->dtype);
  if (!scheme) {
    context.findings.add(finding_at(
        "C15", "unsupported-weight", Severity::kError, weight,
        fmt::format("{}: no known kind of weight has this form: {} without matching scales",
                    tensor_text(weight), shape_text(*weight.info)),
        "supported are F32, F16, BF16, FP8 (tensor, channel, block), NVFP4 and MXFP4 with the "
        "scales of their dialect"));
    return Outcome::kBroken;
  }
  for (const Part part :
       {Part::kWeightScale, Part::kWeightScale2, Part::kWeightScaleInv, Part::kWeightGlobalScale}) {
    if (!tensors[part]) continue;
    context.findings.add(finding_at(
        "C15", "scale-of-plain-weight", Severity::kError, tensors[part],
        fmt::format(
            "{} is there, but {} is {} and takes no scale: was it dequantized or only cast?",
            tensor_text(tensors[part]), tensor_text(weight), shape_text(*weight.info)),
        "take the checkpoint from its source again"));
    return Outcome::kBroken;
  }
  if (weight.info->shape[0] == 0 || weight.info->shape[1] == 0) {
    context.findings.add(finding_at("C15", "empty-weight", Severity::kError, weight,
                                    fmt::format("{}: expected a matrix, found {}",
                                                tensor_text(weight), shape_text(*weight.info)),
                                    "export the checkpoint again"));
    return Outcome::kBroken;
  }
  record.scheme = *scheme;
  record.n = weight.info->shape[0];
  record.k = weight.info->shape[1];
  record.weight = weight;
  record.block_n = 1;
  record.block_k = record.k;
  return Outcome::kRecord;
}

}  // namespace sextant
