// What the dialect readers share: each is offered a module's tensors and answers whether they are
// its own, with a record or with findings that say why there is none. Shapes of NVFP4 are checked
// here once for all dialects.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/resolve.h"

namespace sextant {

enum class Outcome : uint8_t { kNotMine, kRecord, kBroken };

struct DialectContext {
  const QuantConfig& quant;
  const JsonValue* config;
  FindingSet& findings;
  std::vector<std::unique_ptr<OwnedTensor>>& owned;
  // Bad values that a finding names already: experts of a stack may share one scale.
  std::set<std::pair<const TensorInfo*, size_t>> reported = {};
};

Outcome read_modelopt_linear(const ModuleTensors& tensors, DialectContext& context,
                             LinearRecord& record);
Outcome read_compressed_tensors_linear(const ModuleTensors& tensors, DialectContext& context,
                                       LinearRecord& record);
Outcome read_fp8_linear(const ModuleTensors& tensors, DialectContext& context,
                        LinearRecord& record);
Outcome read_mxfp4_linear(const ModuleTensors& tensors, DialectContext& context,
                          LinearRecord& record);
Outcome read_plain_linear(const ModuleTensors& tensors, DialectContext& context,
                          LinearRecord& record);

// A finding about one tensor, with its file.
Finding finding_at(std::string id, std::string slug, Severity severity, const TensorRef& ref,
                   std::string message, std::string remedy);
// An error about a tensor that is not there.
Finding missing_tensor(std::string slug, const ModuleTensors& tensors, Part part,
                       std::string_view why);

std::string tensor_text(const TensorRef& ref);   // quoted name, with the expert of a slice
std::string value_text(float value);             // "nan", "inf", nine digits
std::string shape_text(const TensorInfo& info);  // "F8_E4M3 [4, 2]"
bool is_codes_dtype(DType dtype);                // U8, I8, F4: two codes a byte

// [n, k] of packed codes; empty unless two-dimensional (with even columns for F4).
std::optional<std::pair<int64_t, int64_t>> codes_shape(const TensorInfo& info);

// Sets n, k, weight, scales, block_k of an NVFP4 record; false after a finding.
bool read_nvfp4_blocks(const ModuleTensors& tensors, const TensorRef& weight,
                       const TensorRef& scales, DialectContext& context, LinearRecord& record);

// The columns a block scale of NVFP4 covers by the config; 0 where it does not say.
int64_t declared_group_size(const std::string& module, const QuantConfig& quant);

// One scalar, or one a part of a fused linear, as float32: F32, or BF16 or F16 with a warning.
// Empty after a finding.
std::vector<float> read_scalars(const TensorRef& ref, DialectContext& context);

// Ranges of a record from its global scale tensor; false after a finding. Values that are not
// finite, not positive or denormal are findings, and the ranges are set all the same.
bool read_ranges(const TensorRef& ref, bool is_divisor, DialectContext& context,
                 LinearRecord& record);

// The activation multiplier; bad ones are activation-only errors and leave the record without.
void read_input_scale(const TensorRef& ref, bool is_divisor, DialectContext& context,
                      LinearRecord& record);

// AWQ's vector over the input columns; false after a finding.
bool read_pre_quant_scale(const ModuleTensors& tensors, DialectContext& context,
                          LinearRecord& record);

// A view of `ref` under another dtype, or new bytes under a new shape.
TensorRef relabeled(const TensorRef& ref, DType dtype, DialectContext& context);
TensorRef converted(const TensorRef& ref, DType dtype, std::vector<int64_t> shape,
                    std::vector<std::byte> data, DialectContext& context);

}  // namespace sextant
