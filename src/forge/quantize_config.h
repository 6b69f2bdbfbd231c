// The configuration of a weight-only NVFP4 checkpoint in both dialects (nvfp4.md 2.1, 2.2), and the
// index of a checkpoint of several files.
#pragma once

#include <string>
#include <vector>

#include "forge/quantize_plan.h"
#include "io/json.h"

namespace sextant {

// config.json of the source with its quantization_config set.
Json quantized_config(const Json& config, const QuantizeOptions& options,
                      const std::vector<std::string>& ignore);
// hf_quant_config.json, which the ModelOpt dialect has beside it.
Json hf_quant_config(const QuantizeOptions& options, const std::vector<std::string>& ignore);
// model.safetensors.index.json.
Json safetensors_index(const std::vector<PlannedShard>& shards, int64_t total_bytes);

}  // namespace sextant
