// From tensors by name to one record a linear. Tensors are grouped by module and each group is
// offered to the dialects, which recognize it by its own tensors' dtypes and shapes; the config
// only breaks ties that bytes cannot (block sizes, groups of 32). What cannot be a sound linear is
// a finding and gets no record.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/finding.h"
#include "checkpoint/record.h"
#include "checkpoint/tensor_map.h"

namespace sextant {

// The tensors a linear can be made of, by the last component of their names.
enum class Part : uint8_t {
  kWeight,             // weight
  kWeightPacked,       // weight_packed
  kWeightScale,        // weight_scale
  kWeightScale2,       // weight_scale_2
  kWeightScaleInv,     // weight_scale_inv
  kScale,              // scale (DeepSeek)
  kWeightGlobalScale,  // weight_global_scale
  kInputScale,         // input_scale
  kInputGlobalScale,   // input_global_scale
  kPreQuantScale,      // pre_quant_scale
  kCount
};
inline constexpr size_t kPartCount = static_cast<size_t>(Part::kCount);
std::string_view part_name(Part part);

struct ModuleTensors {
  std::string module;
  std::array<TensorRef, kPartCount> parts;
  const TensorRef& operator[](Part part) const { return parts[static_cast<size_t>(part)]; }
  TensorRef& operator[](Part part) { return parts[static_cast<size_t>(part)]; }
};

// Which dialect a record was read in.
enum class Dialect : uint8_t { kPlain, kModelOpt, kCompressedTensors, kFp8, kMxfp4, kDeepSeek };

// A tensor brought into another form than the file's.
struct OwnedTensor {
  TensorInfo info;
  std::vector<std::byte> data;
};

struct Resolved {
  std::map<std::string, LinearRecord, std::less<>> linears;
  // Of experts in stacks: the views of their parts, by module, in the order of record.tensors.
  std::map<std::string, std::vector<TensorRef>, std::less<>> slices_of;
  std::set<Dialect> dialects;                                // of all linears
  std::map<std::string, KvScales, std::less<>> kv_scales;    // by attention module
  std::map<std::string, std::string, std::less<>> harmless;  // tensor, reason
  std::vector<std::unique_ptr<OwnedTensor>> owned;
};

// `config` is config.json, for head counts and layer counts; may be null.
Resolved resolve_tensors(const TensorMap& tensors, const QuantConfig& quant,
                         const JsonValue* config, FindingSet& findings);

}  // namespace sextant
