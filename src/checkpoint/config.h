// The quantization config of a checkpoint, in all the forms it comes in: hf_quant_config.json and
// config.json quantization_config of ModelOpt, compressed-tensors, FP8 and MXFP4 lists of
// transformers. It never decides how a tensor is read (stored dtype and shape do); it says what
// was meant, so that contradictions become findings and absent activation scales can be told from
// lost ones. The model's own fields (heads, layers, rope) are read in model/config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/finding.h"
#include "checkpoint/patterns.h"
#include "checkpoint/record.h"
#include "io/json.h"

namespace sextant {

enum class Activations : uint8_t { kUnknown, kNone, kStatic, kDynamic };

// What a rule of the config says about the linears it names.
struct DeclaredScheme {
  std::optional<Scheme> scheme;  // empty: it does not say
  int64_t group_size = 0;        // 0: it does not say
  int64_t block_n = 0;           // FP8 blocks
  int64_t block_k = 0;
  Activations activations = Activations::kUnknown;
};

struct QuantGroup {
  std::string name;  // "group_0"
  std::vector<std::string> targets;
  DeclaredScheme declared;
};

struct QuantConfig {
  enum class Style : uint8_t { kNone, kModelOpt, kCompressedTensors, kFp8, kMxfp4 };

  Style style = Style::kNone;
  std::string source;     // "config.json quantization_config"
  std::string algorithm;  // as written, for messages: "NVFP4"
  DeclaredScheme whole;   // every linear that no group, no layer entry and no exclusion names
  std::vector<QuantGroup> groups;                // in file order: the first match decides
  std::map<std::string, DeclaredScheme> layers;  // ModelOpt quantized_layers
  bool mixed = false;                            // only what `layers` names is quantized
  std::vector<std::string> exclude;
  std::string exclude_source;  // "config.json ignore"

  PatternStyle exclude_style() const;
};

// Reads both places; config or sidecar may be null. What is malformed, unknown or different
// between the two is a finding.
QuantConfig read_quant_config(const JsonValue* config, const JsonValue* sidecar,
                              FindingSet& findings);

// A member of the model's config, looked up in text_config as well; nullptr where there is none.
const JsonValue* find_model_field(const JsonValue* config, std::string_view key);
std::optional<int64_t> model_int(const JsonValue* config, std::string_view key);
bool model_flag(const JsonValue* config, std::string_view key);

}  // namespace sextant
