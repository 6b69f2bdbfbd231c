// Policies (cli.md section 5) as data: per linear, how its activations are quantized and in what
// form its weights are used. Parsing and matching are pure functions over plain structs; which
// modules there are is the model's knowledge, so a pattern that matches none is found after
// binding (check_patterns).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sextant {

enum class Act : uint8_t { kF32, kA16 };
enum class Weights : uint8_t { kStored, kBf16, kF32 };
std::string_view act_name(Act act);              // "f32", "a16"
std::string_view weights_name(Weights weights);  // "stored", "bf16", "f32"

struct PolicyRule {
  std::string pattern = "*";  // shell-style on module names
  Act act = Act::kA16;
  Weights weights = Weights::kStored;
  std::string spec;          // as the user wrote it
  bool has_pattern = false;  // it names modules, and so may be about routers too
};

struct LinearPolicy {
  Act act = Act::kA16;
  Weights weights = Weights::kStored;
  bool operator==(const LinearPolicy&) const = default;
};

struct Policy {
  std::vector<PolicyRule> rules;  // a later rule wins; at least one, matching everything
  LinearPolicy for_module(std::string_view module) const;
  // A router's small matrix decides between experts, so that a rounding there is not a small error
  // but another expert: float32 and as stored, unless a rule with a pattern asks for something
  // else.
  LinearPolicy for_router(std::string_view module) const;
};

// Parses --policy values; known policies of later versions (a4, a8) are kUnsupported by name,
// anything else kUsage. A rule "*" with a16 stands before them all.
Result<Policy> parse_policy(std::span<const std::string> specs);

// kUsage with the pattern where a rule matches none of the modules.
Status check_patterns(const Policy& policy, std::span<const std::string> modules);

}  // namespace sextant
