// Policies (cli.md section 5) as data: per linear, how its activations are quantized and in what
// form its weights are used. Parsing and matching are pure functions over plain structs; which
// modules there are is the model's knowledge, so a pattern that matches none is found after
// binding (check_patterns).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/record.h"
#include "quant/input_quantizer.h"

namespace sextant {

enum class Act : uint8_t {
  kF32,
  kA16,
  kA8,        // int8 a block of 16
  kA8Fp8,     // E4M3 with the checkpoint's scale, or one a row where it has none
  kAuto,      // what the checkpoint is made for, where nothing speaks against its input scale:
              // a4:static, a8:fp8; else the rule before. Of rules only, never of a LinearPolicy
  kA4Static,  // NVFP4 with the checkpoint's scale
  kA4Warmup,  // with one measured on text before the first answer
  kA4Dynamic,
  kA4Token,
  kA4One,  // G = 1
};
enum class Weights : uint8_t { kStored, kBf16, kF32 };
std::string_view act_name(Act act);              // "f32", "a16", "a4:static", ...
std::string_view weights_name(Weights weights);  // "stored", "bf16", "f32"
constexpr bool is_a4(Act act) { return act >= Act::kA4Static; }

struct PolicyRule {
  std::string pattern = "*";  // shell-style on module names
  Act act = Act::kA16;
  Weights weights = Weights::kStored;
  Nvfp4Profile quantizer = Nvfp4Profile::kA;  // of the a4 forms
  float headroom = 1.0F;                      // of a4:static: the scale times this
  std::string spec;                           // as the user wrote it
  bool has_pattern = false;                   // it names modules, and so may be about routers too
};

// Why a linear does not take its inputs as the rule that matched it wants.
enum class Unmet : uint8_t {
  kNone,
  kNotQuantized,  // a4: weights are not 4-bit; a8:fp8: not FP8
  kNoInputScale,  // a4:static: the file has none that can be used
  kNoWarmup,      // a4:warmup: nothing was measured for it
};
std::string_view unmet_text(Unmet unmet);

struct LinearPolicy {
  Act act = Act::kA16;
  Weights weights = Weights::kStored;
  Nvfp4Profile quantizer = Nvfp4Profile::kA;
  float headroom = 1.0F;
  float warmup_scale = 1.0F;         // of a4:warmup
  bool from_bf16 = true;             // a16 lies under a quantizing form, not f32: BF16 comes in
  Unmet unmet = Unmet::kNone;        // why not as `rule` wants; act is then of an earlier one
  const PolicyRule* rule = nullptr;  // the last that matches; lives as long as the Policy
  std::string why;                   // of auto: what decided
};

// The same arithmetic, whatever rules led to it.
bool is_same_arithmetic(const LinearPolicy& a, const LinearPolicy& b);

struct Policy {
  std::vector<PolicyRule> rules;  // a later rule wins; at least one, matching everything
  // Linears, as the file names them, whose input scale has a finding against it, and which; read by
  // auto.
  std::map<std::string, std::string, std::less<>> distrusted_inputs;
  // Multipliers that were measured (a4:warmup), by module.
  std::map<std::string, float, std::less<>> warmup_scales;

  // The last rule that matches gives the form of the weights, and of the activations too where the
  // linear can follow it (can_follow). Where it cannot, the rule before it decides how activations
  // are taken, down to the default: a16, or float32 where a rule says so.
  LinearPolicy for_linear(std::string_view module, const LinearRecord& record) const;
  // A router's small matrix decides between experts, so that a rounding there is not a small error
  // but another expert: float32 and as stored, unless a rule with a pattern asks for something
  // else.
  LinearPolicy for_router(std::string_view module, const LinearRecord& record) const;

  // Whether the checkpoint's input scale is to be used for this linear, if there were a sound one.
  // May be asked before a4:warmup has measured.
  bool wants_input_scale(std::string_view module, const LinearRecord& record) const;
};

// Whether a linear stored like this can take its activations so, and if not, why.
Unmet can_follow(Act act, const LinearRecord& record, bool warmed_up);

// What quantizes the inputs of a linear with this policy; kPlain for f32 and a16.
InputQuantizer input_quantizer(const LinearPolicy& policy, const LinearRecord& record);

// Parses --policy values; anything unknown is kUsage. A rule "*" with a16 stands before them all.
Result<Policy> parse_policy(std::span<const std::string> specs);

// Rules whose pattern matches none of the modules.
std::vector<const PolicyRule*> unmatched_rules(const Policy& policy,
                                               std::span<const std::string> modules);
// kUsage with the pattern where a rule matches none of the modules.
Status check_patterns(const Policy& policy, std::span<const std::string> modules);

}  // namespace sextant
