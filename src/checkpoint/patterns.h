// Module-name patterns of quantization configs, as their producers match them (nvfp4.md 2.1, 2.2):
//   kShell   ModelOpt: Python's fnmatch over the whole name ('*' crosses dots, so "name*" covers
//            the subtree; '?', '[seq]', '[!seq]').
//   kExact   compressed-tensors: equality, or "re:" and a regular expression that must match from
//            the start (not necessarily to the end), or, for targets only, a class name.
//   kPrefix  the lists of transformers (FP8, MXFP4): a shell pattern for the module, a parent of
//            it, or its last components.
// Patterns match names as the file has them, before any renaming. Matching is bounded: shell
// patterns in |pattern| * |name| steps, regular expressions by a match limit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sextant {

enum class PatternStyle : uint8_t { kShell, kExact, kPrefix };

// A module of the checkpoint: whatever owns tensors, and its class as far as names tell it
// ("Linear", "Embedding", "Router", or "" for anything else).
struct ModuleName {
  std::string name;
  std::string_view class_name;
};

// How one exclusion or target pattern of the quantization config fared.
struct PatternReport {
  std::string
      source;  // "config.json ignore", "hf_quant_config.json exclude_modules", "group_0 targets"
  std::string pattern;
  std::vector<std::string> matched;  // modules, in name order
};

// Python's fnmatch.fnmatchcase.
bool shell_match(std::string_view pattern, std::string_view name);

class PatternMatcher {
 public:
  // kInput for a regular expression that does not compile, or a pattern longer than 64 KiB.
  // `class_targets`: the pattern may also be contained, whatever the case, in the module's class.
  static Result<PatternMatcher> compile(std::string_view pattern, PatternStyle style,
                                        bool class_targets);
  PatternMatcher(PatternMatcher&&) noexcept;
  PatternMatcher& operator=(PatternMatcher&&) noexcept;
  ~PatternMatcher();

  // Indices into modules, ascending. kResources when a regular expression exceeds the match limit.
  Result<std::vector<size_t>> match(const std::vector<ModuleName>& sorted_modules) const;

 private:
  struct Regex;
  PatternMatcher() = default;
  Result<bool> matches(const ModuleName& module) const;

  std::string pattern_;
  PatternStyle style_ = PatternStyle::kShell;
  bool class_targets_ = false;
  std::unique_ptr<Regex> regex_;
};

}  // namespace sextant
