// Implements config.h: the families' differences stand in one table, the rest is common.
#include "model/config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "io/ordered_json.h"
#include "model/config_fields.h"

namespace sextant {
namespace {

// Bounds of what a sound configuration says; generous, and small enough that products of any four
// stay far below 2^63.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxFeedForward = int64_t{1} << 22;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPosition = int64_t{1} << 48;  // the engine caps the context by memory
constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 65536.0;

// kDisputed: versions of transformers differ on the layers that use_sliding_window is about (all of
// them, or those from max_window_layers on), so that no window is right.
enum class WindowRule : uint8_t { kNone, kEveryLayer, kFromLayer, kDisputed };

struct Family {
  std::string_view architecture;
  std::string_view model_type;
  bool bias_fields;  // attention_bias and mlp_bias are read
  bool qkv_bias;     // always there
  bool qk_norm;
  WindowRule window;
  std::optional<int64_t> head_dim;    // default; else hidden_size / num_attention_heads
  std::optional<int64_t> n_kv_heads;  // default; else num_attention_heads
  bool experts = false;
};

constexpr std::array<Family, 5> kFamilies = {{
    {"LlamaForCausalLM", "llama", true, false, false, WindowRule::kNone, {}, {}},
    {"MistralForCausalLM", "mistral", false, false, false, WindowRule::kEveryLayer, {}, 8},
    {"Qwen2ForCausalLM", "qwen2", false, true, false, WindowRule::kFromLayer, {}, 32},
    {"Qwen3ForCausalLM", "qwen3", true, false, true, WindowRule::kFromLayer, 128, 32},
    {"Qwen3MoeForCausalLM", "qwen3_moe", true, false, true, WindowRule::kDisputed, {}, 4, true},
}};

Result<const Family*> find_family(const ConfigFields& fields) {
  SX_ASSIGN(const std::vector<std::string> architectures, fields.texts("architectures"));
  SX_ASSIGN(const std::string model_type, fields.text("model_type", ""));
  if (architectures.empty() && model_type.empty())
    return fail_at(fields.where("architectures"), Code::kInput,
                   "{}: neither architectures nor model_type is there; expected one of {}",
                   fields.file(), known_architectures());
  const Family* family = nullptr;
  for (const Family& f : kFamilies) {
    const bool named = architectures.empty() ? f.model_type == model_type
                                             : f.architecture == architectures.front();
    if (named) family = &f;
  }
  if (family == nullptr) {
    const bool code = fields.has("auto_map");
    return fail_at(fields.where("architectures"), Code::kUnsupported,
                   "architecture {} is not supported{}; known: {}",
                   architectures.empty() ? "of model_type " + model_type : architectures.front(),
                   code ? " (it names code of its own in auto_map, which is never run)" : "",
                   known_architectures());
  }
  if (!model_type.empty() && model_type != family->model_type)
    return fail_at(fields.where("model_type"), Code::kModel,
                   "{}: architectures says {}, but model_type says {} (expected {}); correct one "
                   "of them",
                   fields.file(), family->architecture, model_type, family->model_type);
  return family;
}

Status read_sizes(const ConfigFields& fields, const Family& family, ModelConfig& c) {
  SX_ASSIGN(c.n_layers, fields.integer("num_hidden_layers", 1, kMaxLayers));
  SX_ASSIGN(c.d_model, fields.integer("hidden_size", 1, kMaxWidth));
  SX_ASSIGN(c.d_ff, fields.integer("intermediate_size", 1, kMaxFeedForward));
  SX_ASSIGN(c.n_heads, fields.integer("num_attention_heads", 1, kMaxHeads));
  SX_ASSIGN(c.n_kv_heads, fields.integer("num_key_value_heads", 1, kMaxHeads,
                                         family.n_kv_heads.value_or(c.n_heads)));
  SX_ASSIGN(c.n_vocab, fields.integer("vocab_size", 1, kMaxVocab));
  if (c.n_heads % c.n_kv_heads != 0)
    return fail_at(fields.where("num_key_value_heads"), Code::kModel,
                   "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}",
                   fields.file(), c.n_heads, c.n_kv_heads);
  if (fields.has("head_dim") || family.head_dim) {
    SX_ASSIGN(c.head_dim, fields.integer("head_dim", 2, kMaxHeadDim, family.head_dim));
  } else {
    if (c.d_model % c.n_heads != 0)
      return fail_at(fields.where("hidden_size"), Code::kModel,
                     "{}: hidden_size {} is not a multiple of num_attention_heads {}, and there "
                     "is no head_dim",
                     fields.file(), c.d_model, c.n_heads);
    c.head_dim = c.d_model / c.n_heads;
  }
  if (c.head_dim % 2 != 0 || c.head_dim < 2 || c.head_dim > kMaxHeadDim)
    return fail_at(fields.where("head_dim"), Code::kInput,
                   "{}: heads of {} dimensions; expected an even number from 2 to {}, because "
                   "rotary embeddings turn pairs",
                   fields.file(), c.head_dim, kMaxHeadDim);
  SX_ASSIGN(c.max_position, fields.integer("max_position_embeddings", 1, kMaxPosition));
  SX_ASSIGN(const double eps, fields.number("rms_norm_eps", 1e-12, 0.1, 1e-6));
  c.rms_eps = static_cast<float>(eps);
  return {};
}

Status read_flags(const ConfigFields& fields, const Family& family, ModelConfig& c) {
  SX_ASSIGN(const std::string act, fields.text("hidden_act", "silu"));
  if (act != "silu" && act != "swish")
    return fail_at(fields.where("hidden_act"), Code::kUnsupported,
                   "{}: hidden_act {} is not supported for {}; known: silu", fields.file(), act,
                   family.architecture);
  SX_ASSIGN(c.tied_embeddings, fields.boolean("tie_word_embeddings", false));
  c.qkv_bias = family.qkv_bias;
  c.qk_norm = family.qk_norm;
  SX_ASSIGN(const bool attention_bias, fields.boolean("attention_bias", false));
  SX_ASSIGN(const bool mlp_bias, fields.boolean("mlp_bias", false));
  if (family.bias_fields) {
    c.qkv_bias = attention_bias;
    c.o_bias = attention_bias;
  }
  if (family.model_type == "llama") c.mlp_bias = mlp_bias;
  if ((attention_bias && !family.bias_fields) || (mlp_bias && !c.mlp_bias))
    return fail_at(fields.where(mlp_bias ? "mlp_bias" : "attention_bias"), Code::kUnsupported,
                   "{}: {} is true, but {} has no such biases", fields.file(),
                   mlp_bias ? "mlp_bias" : "attention_bias", family.architecture);
  return {};
}

// num_experts is num_local_experts in files that transformers 5 writes.
Result<int64_t> read_expert_count(const ConfigFields& fields) {
  const bool local = fields.has("num_local_experts") && !fields.has("num_experts");
  SX_ASSIGN(const int64_t n,
            fields.integer(local ? "num_local_experts" : "num_experts", 1, kMaxExperts));
  SX_ASSIGN(const int64_t n_local, fields.integer("num_local_experts", 1, kMaxExperts, n));
  if (n_local != n)
    return fail_at(fields.where("num_local_experts"), Code::kModel,
                   "{}: num_experts is {} and num_local_experts is {}; keep one", fields.file(), n,
                   n_local);
  return n;
}

// Every decoder_sparse_step-th layer has experts, but for those of mlp_only_layers.
Status read_experts(const ConfigFields& fields, const Family& family, ModelConfig& c) {
  c.sparse.assign(static_cast<size_t>(c.n_layers), false);
  if (!family.experts) return {};
  SX_ASSIGN(c.n_experts, read_expert_count(fields));
  SX_ASSIGN(c.top_k, fields.integer("num_experts_per_tok", 1, kMaxExperts));
  if (c.top_k > c.n_experts)
    return fail_at(fields.where("num_experts_per_tok"), Code::kModel,
                   "{}: num_experts_per_tok is {}, but a layer has {} experts", fields.file(),
                   c.top_k, c.n_experts);
  SX_ASSIGN(c.d_ff_expert, fields.integer("moe_intermediate_size", 1, kMaxFeedForward));
  SX_ASSIGN(c.norm_top_k, fields.boolean("norm_topk_prob", false));
  SX_ASSIGN(const int64_t step, fields.integer("decoder_sparse_step", 1, kMaxLayers, 1));
  SX_ASSIGN(const std::vector<int64_t> dense,
            fields.integers("mlp_only_layers", 0, c.n_layers - 1));
  for (int64_t i = step - 1; i < c.n_layers; i += step) c.sparse[static_cast<size_t>(i)] = true;
  for (const int64_t i : dense) c.sparse[static_cast<size_t>(i)] = false;
  return {};
}

// layer_types, where it is there, says per layer what the rule of the family says otherwise.
Status read_windows(const ConfigFields& fields, const Family& family, ModelConfig& c) {
  c.window.assign(static_cast<size_t>(c.n_layers), 0);
  SX_ASSIGN(const std::vector<std::string> types, fields.texts("layer_types"));
  if (!types.empty() && static_cast<int64_t>(types.size()) != c.n_layers)
    return fail_at(fields.where("layer_types"), Code::kModel,
                   "{}: layer_types names {} layers, num_hidden_layers says {}", fields.file(),
                   types.size(), c.n_layers);
  int64_t window = 0;
  int64_t first = 0;
  if (family.window == WindowRule::kNone) {
    if (fields.has("sliding_window"))
      return fail_at(fields.where("sliding_window"), Code::kUnsupported,
                     "{}: sliding_window is {}, but {} attends to everything; engines differ on "
                     "what this means, so remove it or name the architecture that has windows",
                     fields.file(), shown(*fields.find("sliding_window")), family.architecture);
  } else {
    SX_ASSIGN(const bool use,
              fields.boolean("use_sliding_window", family.window == WindowRule::kEveryLayer));
    const int64_t absent = fields.is_null("sliding_window") ? 0 : 4096;  // transformers' default
    SX_ASSIGN(window, fields.integer("sliding_window", 1, kMaxPosition, absent));
    if (!use) window = 0;
    if (window > 0 && family.window == WindowRule::kDisputed)
      return fail_at(fields.where("use_sliding_window"), Code::kUnsupported,
                     "{}: use_sliding_window is true, and engines differ on which layers of {} "
                     "that means; set it to false to attend to everything",
                     fields.file(), family.architecture);
    if (family.window == WindowRule::kFromLayer) {
      SX_ASSIGN(first, fields.integer("max_window_layers", 0, kMaxPosition, 28));
    }
  }
  for (int64_t i = 0; i < c.n_layers; ++i) {
    bool slides = window > 0 && i >= first;
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(i)];
      if (type != "full_attention" && type != "sliding_attention")
        return fail_at(fields.where("layer_types"), Code::kUnsupported,
                       "{}: layer_types gives layer {} the type {}; known: full_attention, "
                       "sliding_attention",
                       fields.file(), i, type);
      const bool asked = type == "sliding_attention";
      if (asked && window == 0)
        return fail_at(fields.where("layer_types"), Code::kModel,
                       "{}: layer_types gives layer {} sliding_attention, but there is no "
                       "sliding_window in use",
                       fields.file(), i);
      if (family.window == WindowRule::kEveryLayer && asked != slides)
        return fail_at(fields.where("layer_types"), Code::kModel,
                       "{}: layer_types gives layer {} {}, but sliding_window {} holds for every "
                       "layer of {}",
                       fields.file(), i, type, window, family.architecture);
      slides = asked;
    }
    c.window[static_cast<size_t>(i)] = slides ? window : 0;
  }
  return {};
}

Result<RopeKind> read_rope_kind(const ConfigFields& rope) {
  const char* name = rope.has("rope_type") ? "rope_type" : "type";
  SX_ASSIGN(const std::string kind, rope.text(name, "default"));
  for (const RopeKind k : {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kDynamic,
                           RopeKind::kLlama3, RopeKind::kYarn})
    if (kind == rope_kind_name(k)) return k;
  return fail_at(rope.where(name), Code::kUnsupported,
                 "{}: rope type {} is not supported; known: default, linear, dynamic, llama3, yarn",
                 rope.file(), kind);
}

Status read_scaling(const ConfigFields& rope, const ModelConfig& c, RopeConfig& r) {
  if (r.kind == RopeKind::kDefault) return {};
  SX_ASSIGN(r.original_max_position,
            rope.integer("original_max_position_embeddings", 1, kMaxPosition,
                         r.kind == RopeKind::kLlama3 ? std::nullopt
                                                     : std::optional<int64_t>(c.max_position)));
  std::optional<double> factor;
  if (r.kind == RopeKind::kYarn && !rope.has("factor"))
    factor = std::max(
        1.0, static_cast<double>(c.max_position) / static_cast<double>(r.original_max_position));
  SX_ASSIGN(r.factor, rope.number("factor", 1.0, kMaxFactor, factor));
  if (r.kind == RopeKind::kLlama3) {
    SX_ASSIGN(r.low_freq_factor, rope.number("low_freq_factor", 1e-6, 1e6));
    SX_ASSIGN(r.high_freq_factor, rope.number("high_freq_factor", 1e-6, 1e6));
    if (r.low_freq_factor >= r.high_freq_factor)
      return fail_at(rope.where("high_freq_factor"), Code::kModel,
                     "{}: low_freq_factor {} must be below high_freq_factor {}", rope.file(),
                     r.low_freq_factor, r.high_freq_factor);
  }
  if (r.kind == RopeKind::kYarn) {
    SX_ASSIGN(r.beta_fast, rope.number("beta_fast", 1e-6, 1e6, 32.0));
    SX_ASSIGN(r.beta_slow, rope.number("beta_slow", 1e-6, 1e6, 1.0));
    if (r.beta_fast < r.beta_slow)
      return fail_at(rope.where("beta_fast"), Code::kModel,
                     "{}: beta_fast {} must not be below beta_slow {}", rope.file(), r.beta_fast,
                     r.beta_slow);
    SX_ASSIGN(r.attention_factor, rope.number("attention_factor", 1e-3, 1e3, 0.0));
    SX_ASSIGN(r.mscale, rope.number("mscale", 0.0, 1e3, 0.0));
    SX_ASSIGN(r.mscale_all_dim, rope.number("mscale_all_dim", 0.0, 1e3, 0.0));
    SX_ASSIGN(r.truncate, rope.boolean("truncate", true));
  }
  return {};
}

// rope_parameters (new style) holds rope_theta too; rope_scaling (hub style) has it beside itself.
Status read_rope(const ConfigFields& fields, const JsonValue& config, ModelConfig& c) {
  const JsonValue* parameters = fields.find("rope_parameters");
  const JsonValue* scaling = fields.find("rope_scaling");
  const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const JsonValue* object = parameters != nullptr ? parameters : scaling;
  if (object != nullptr && !object->is_object())
    return fail_at(fields.where(name), Code::kInput, "{}: field {} is {}; expected an object",
                   fields.file(), name, shown(*object));
  if (parameters != nullptr && scaling != nullptr && parameters->to_json() != scaling->to_json())
    return fail_at(fields.where("rope_scaling"), Code::kModel,
                   "{}: rope_parameters {} and rope_scaling {} contradict; keep one", fields.file(),
                   shown(*parameters), shown(*scaling));
  SX_ASSIGN(c.rope.theta, fields.number("rope_theta", 1e-3, kMaxTheta, 10000.0));
  for (const ConfigFields& place : {fields, ConfigFields(object != nullptr ? *object : config,
                                                         fields.file(), std::string(name) + ".")}) {
    SX_ASSIGN(const double partial, place.number("partial_rotary_factor", 0.0, 1.0, 1.0));
    if (partial != 1.0)
      return fail_at(place.where("partial_rotary_factor"), Code::kUnsupported,
                     "{}: partial_rotary_factor {} is not supported for {}; expected 1",
                     fields.file(), partial, c.architecture);
  }
  if (object == nullptr) return {};
  const ConfigFields rope(*object, fields.file(), std::string(name) + ".");
  if (rope.has("rope_theta")) {
    SX_ASSIGN(const double theta, rope.number("rope_theta", 1e-3, kMaxTheta));
    if (fields.has("rope_theta") && theta != c.rope.theta)
      return fail_at(rope.where("rope_theta"), Code::kModel,
                     "{}: rope_theta is {} and {}.rope_theta is {}; keep one", fields.file(),
                     c.rope.theta, name, theta);
    c.rope.theta = theta;
  }
  SX_ASSIGN(c.rope.kind, read_rope_kind(rope));
  return read_scaling(rope, c, c.rope);
}

// yarn counts from the original length: max_position_embeddings is the original in some files and
// the stretched length in others.
int64_t context_of(const ModelConfig& c) {
  double limit = static_cast<double>(c.max_position);
  if (c.rope.kind == RopeKind::kLinear || c.rope.kind == RopeKind::kDynamic) limit *= c.rope.factor;
  if (c.rope.kind == RopeKind::kYarn)
    limit = std::max(limit, static_cast<double>(c.rope.original_max_position) * c.rope.factor);
  return static_cast<int64_t>(limit);
}

Status read_token_ids(const ConfigFields& fields, bool with_bos, ModelConfig& c) {
  SX_ASSIGN(const std::vector<int64_t> eos, fields.integers("eos_token_id", 0, c.n_vocab - 1));
  for (const int64_t id : eos)
    if (std::find(c.eos_ids.begin(), c.eos_ids.end(), id) == c.eos_ids.end())
      c.eos_ids.push_back(static_cast<int32_t>(id));
  if (with_bos) {
    SX_ASSIGN(const std::vector<int64_t> bos, fields.integers("bos_token_id", 0, c.n_vocab - 1));
    if (!bos.empty() && c.bos_id < 0) c.bos_id = static_cast<int32_t>(bos.front());
  }
  return {};
}

}  // namespace

std::string_view rope_kind_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault: return "default";
    case RopeKind::kLinear: return "linear";
    case RopeKind::kDynamic: return "dynamic";
    case RopeKind::kLlama3: return "llama3";
    case RopeKind::kYarn: return "yarn";
  }
  return "";
}

std::string known_architectures() {
  std::string names;
  for (const Family& f : kFamilies) {
    if (!names.empty()) names += ", ";
    names += f.architecture;
  }
  return names;
}

Result<ModelConfig> read_model_config(const JsonValue& config, const JsonValue* generation_config) {
  if (!config.is_object())
    return fail(Code::kInput, "config.json holds {}; expected an object", config.kind_name());
  const ConfigFields fields(config, "config.json");
  SX_ASSIGN(const Family* family, find_family(fields));
  ModelConfig c;
  c.architecture = family->architecture;
  c.model_type = family->model_type;
  SX_TRY(read_sizes(fields, *family, c));
  SX_TRY(read_flags(fields, *family, c));
  SX_TRY(read_experts(fields, *family, c));
  SX_TRY(read_windows(fields, *family, c));
  SX_TRY(read_rope(fields, config, c));
  c.max_context = context_of(c);
  SX_TRY(read_token_ids(fields, true, c));
  if (generation_config != nullptr) {
    if (!generation_config->is_object())
      return fail(Code::kInput, "generation_config.json holds {}; expected an object",
                  generation_config->kind_name());
    SX_TRY(read_token_ids(ConfigFields(*generation_config, "generation_config.json"), true, c));
  }
  return c;
}

}  // namespace sextant
