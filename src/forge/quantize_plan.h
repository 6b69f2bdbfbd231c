// What quantize will do, decided from names, shapes and options before any weight is read: which
// linears become NVFP4 and which of them share a global scale, what is copied as it is and why, and
// the tensors of every shard. Pure data, so that it can be tested and printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "forge/quantize.h"
#include "io/safetensors_writer.h"

namespace sextant {

struct PlannedLinear {
  const LinearRecord* record = nullptr;
  size_t shard = 0;
  int64_t codes_idx = 0;  // in the shard's tensors
  int64_t scales_idx = 0;
  int64_t global_idx = 0;
};

struct PlannedCopy {
  TensorRef tensor;
  size_t shard = 0;
  int64_t idx = 0;
};

struct PlannedShard {
  std::string file_name;
  std::vector<TensorSpec> tensors;
};

struct QuantizePlan {
  std::vector<PlannedShard> shards;
  std::vector<std::vector<PlannedLinear>> groups;  // each shares one global scale
  std::vector<PlannedCopy> copies;
  std::vector<KeptModule> kept;
  std::vector<std::string> ignore;  // modules the configuration must exclude, sorted
  std::vector<std::string> notes;
};

// Linears that engines run as one product and some read with one scale: q/k/v, gate/up (w1/w3 in
// experts), and the first projections of latent attention. Returns the name that members of one
// group have in common ("model.layers.0.self_attn|qkv"), or the module itself for any other.
std::string fused_group(std::string_view module);

// Why a module stays as it is whatever --keep says: "embedding", "head", "router", "norm"; empty
// for any other.
std::string_view kept_by_default(std::string_view module);

Result<QuantizePlan> plan_quantization(const Checkpoint& source, const QuantizeOptions& options);

}  // namespace sextant
