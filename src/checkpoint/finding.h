// What is noteworthy about a checkpoint, in the form doctor prints (cli.md section 4). Loading
// collects findings too: an error finding stops the load, a warning is shown, a note is listed on
// request. Findings of one kind (id, slug, severity) over many tensors are one finding with a
// count, the worst instance in full and the names of some more.
//
// Ids are stable for ever: C1-C20 are the checks of nvfp4.md section 3.2, F files, P patterns and
// config, E experts, K KV cache and draft layers, A against a reference; doctor/check_list.cpp
// lists them all. Made in this folder:
//   C1 nan-block-scale  C2 negative-block-scale  C3 bad-scalar-scale
//   C14 fused-scale-ratio  C15 missing-global-scale, missing-block-scale, missing-input-scale,
//   orphan-scale, scale-of-plain-weight, scale-shape, scale-dtype, bf16-scalar-scale,
//   ambiguous-scale-split, ambiguous-expert-order, conflicting-scale, unsupported-weight,
//   empty-weight, duplicate-tensor C16 ignored-tensor  C17 group-size  C18 index-lacks-tensor,
//   index-wrong-shard, index-absent-tensor  C19 pre-quant-scale  C20 excluded-but-quantized F1
//   total-size  F2 unread-file  E1 unknown-scale-name  K1 bad-kv-scale  K2 draft-layer P1
//   pattern-matches-nothing  P2 configs-differ  P3 unknown-algorithm P4
//   declared-quantized-stored-plain  P5 config-contradicts-tensors  P6 low-coverage P7
//   malformed-config  P8 bad-pattern; in cli/: P9 vocabulary-beyond-embedding; in model/: P13
//   policy-not-followed
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"

namespace sextant {

enum class Severity : uint8_t { kNote, kWarning, kError };

struct Finding {
  std::string id;    // "C13"
  std::string slug;  // "nan-block-scale"
  Severity severity = Severity::kError;
  std::string message;  // one sentence: expected, found, where
  std::string remedy;   // what to do
  std::string tensor;   // worst instance
  std::optional<int64_t> layer;
  std::optional<int64_t> expert;
  std::vector<int64_t> index;  // row, group, ... of the worst instance
  std::string file;
  std::optional<int64_t> offset;
  std::optional<double> value;
  std::string expected;
  int64_t count = 1;
  bool activation_only =
      false;  // refuses only policies that use activation scales (cli.md section 4)
  std::map<std::string, std::string> engines;  // what each would make of it; doctor --engine
  // Tensors (or files, patterns; NAME[EXPERT] in a stack), worst first, at most 8.
  std::vector<std::string> instances;
};

// Layer and expert number in a tensor or module name: "model.layers.3.mlp.experts.5.up_proj" is
// layer 3, expert 5.
struct NamePosition {
  std::optional<int64_t> layer;
  std::optional<int64_t> expert;
};
NamePosition name_position(std::string_view name);

// What a user accepts: errors with this id about names that the pattern matches (shell-style).
struct Allowance {
  std::string id;
  std::string pattern = "*";
};
// Each "ID" or "ID:PATTERN"; anything else is kUsage.
Result<std::vector<Allowance>> parse_allowances(std::span<const std::string> specs);
bool allows(std::span<const Allowance> allowed, std::string_view id, std::string_view name);

// Collects findings and merges those of one kind.
class FindingSet {
 public:
  FindingSet() = default;
  // Errors that are allowed become warnings. allowed must outlive the set.
  explicit FindingSet(std::span<const Allowance> allowed) : allowed_(allowed) {}

  // `badness` orders the instances of one kind; the worst one gives the message, earlier ones win
  // ties. Layer and expert are filled in from the tensor's name.
  void add(Finding finding, double badness = 0);
  std::vector<Finding> take();  // errors first, then by id

 private:
  struct Entry {
    Finding finding;
    double badness = 0;
    int64_t n_added = 0;
  };
  std::span<const Allowance> allowed_;
  std::map<std::tuple<std::string, std::string, Severity, bool>, Entry> entries_;
};

// The error that refuses a load: the first error finding that counts, with how many more there are.
// Findings about activation scales alone count only where such scales are used.
Status refuse_errors(std::span<const Finding> findings, bool uses_activation_scales);

}  // namespace sextant
