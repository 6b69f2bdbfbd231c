// config.json of the families this build runs in one plain struct, both styles (rope_theta /
// rope_scaling / torch_dtype, and rope_parameters / dtype). Every field is range-checked when read,
// and an error names the field and what was found; where two fields contradict, both values are
// shown. Defaults are those of Hugging Face transformers for each family. Nothing is guessed in
// silence, and no code that a checkpoint names (auto_map) is ever run.
//
// Codes: kInput for a field that is malformed, kModel for two that contradict, kUnsupported for
// what is sound but not known here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/json.h"

namespace sextant {

enum class RopeKind : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };
std::string_view rope_kind_name(RopeKind kind);  // as config.json spells it

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  int64_t original_max_position = 0;  // llama3, yarn, dynamic
  double beta_fast = 32.0;            // yarn
  double beta_slow = 1.0;
  double attention_factor = 0.0;  // 0: from factor / mscale
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  int64_t n_layers = 0;
  int64_t d_model = 0;
  int64_t d_ff = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t n_vocab = 0;
  int64_t max_position = 0;  // max_position_embeddings as it stands
  int64_t max_context = 0;   // what the model can take: max_position, stretched by rope scaling
                             // where max_position does not include that (linear, dynamic, yarn)
  float rms_eps = 1e-6F;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // Qwen3: per-head RMS norm of q and k
  RopeConfig rope;
  std::vector<int64_t> window;   // per layer, 0: full attention
  int64_t n_experts = 0;         // of each sparse layer; 0 in dense families
  int64_t top_k = 0;             // experts a token uses
  int64_t d_ff_expert = 0;       // feed-forward width of one expert; d_ff is that of dense layers
  bool norm_top_k = false;       // the weights of the chosen experts are made to sum to 1
  std::vector<bool> sparse;      // per layer: experts instead of one MLP
  std::vector<int32_t> eos_ids;  // of config.json and generation_config.json, merged
  int32_t bos_id = -1;
};

// The architectures this build knows, for messages.
std::string known_architectures();
Result<ModelConfig> read_model_config(const JsonValue& config, const JsonValue* generation_config);

}  // namespace sextant
