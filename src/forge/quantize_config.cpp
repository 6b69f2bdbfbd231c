// Configurations as the producers of each dialect write them.
#include "forge/quantize_config.h"

#include <map>

#include "io/ordered_json.h"

namespace sextant {
namespace {

// Readers tell the dialect by the producer's name, so it is ModelOpt's, with the version whose
// layout this is; who really wrote the file stands beside it.
Json producer(const QuantizeOptions& options) {
  return Json{{"name", "modelopt"}, {"version", "0.37.0"}, {"written_by", options.writer}};
}

Json modelopt(const QuantizeOptions& options, const std::vector<std::string>& ignore) {
  const Json weights = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  const Json group = {
      {"input_activations", nullptr}, {"weights", weights}, {"targets", Json::array({"Linear"})}};
  return Json{{"config_groups", Json{{"group_0", group}}},
              {"ignore", ignore},
              {"quant_algo", "W4A16_NVFP4"},
              {"producer", producer(options)},
              {"quant_method", "modelopt"}};
}

Json compressed_tensors(const std::vector<std::string>& ignore) {
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"symmetric", true},
                        {"group_size", 16},
                        {"strategy", "tensor_group"},
                        {"block_structure", nullptr},
                        {"dynamic", false},
                        {"actorder", nullptr},
                        {"observer", "minmax"},
                        {"observer_kwargs", Json::object()}};
  const Json group = {{"targets", Json::array({"Linear"})},
                      {"weights", weights},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr}};
  return Json{{"config_groups", Json{{"group_0", group}}},
              {"format", "nvfp4-pack-quantized"},
              {"global_compression_ratio", nullptr},
              {"ignore", ignore},
              {"kv_cache_scheme", nullptr},
              {"quant_method", "compressed-tensors"},
              {"quantization_status", "compressed"}};
}

}  // namespace

Json quantized_config(const Json& config, const QuantizeOptions& options,
                      const std::vector<std::string>& ignore) {
  Json out = config;
  out["quantization_config"] = options.dialect == QuantizeDialect::kModelOpt
                                   ? modelopt(options, ignore)
                                   : compressed_tensors(ignore);
  return out;
}

Json hf_quant_config(const QuantizeOptions& options, const std::vector<std::string>& ignore) {
  const Json quantization = {{"quant_algo", "W4A16_NVFP4"},
                             {"kv_cache_quant_algo", nullptr},
                             {"group_size", 16},
                             {"exclude_modules", ignore}};
  return Json{{"producer", producer(options)}, {"quantization", quantization}};
}

Json safetensors_index(const std::vector<PlannedShard>& shards, int64_t total_bytes) {
  std::map<std::string, std::string> weight_map;
  for (const PlannedShard& shard : shards)
    for (const TensorSpec& tensor : shard.tensors) weight_map[tensor.name] = shard.file_name;
  return Json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
}

}  // namespace sextant
