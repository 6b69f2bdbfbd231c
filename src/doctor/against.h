// A checkpoint held against a reference: a BF16, FP8 or other 4-bit copy of the same model. Both
// are dequantized a slice of rows at a time; a tensor is never in memory whole. Numbers and order
// are the same whatever the number of threads.
//
// What counts as the same weight: the same module name; a fused qkv_proj or gate_up_proj and its
// parts (compared part by part, under the part's name); lm_head and embed_tokens where one side has
// only one of them. A pre_quant_scale (AWQ) belongs to the weight: its columns are multiplied by
// it.
//
// Findings: A1 low-cosine  A2 clean-gain  A3 missing-in-reference  A4 missing-here
//   A5 shape-differs  A6 plain-tensor-differs  A7 non-finite-weight  A8 bad-block
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/directory.h"

namespace sextant {

// Cosine below which a linear is in error, and below which it is doubtful: with 4-bit weights on
// either side, and without.
inline constexpr double kAgainstErrorCosine = 0.9;
inline constexpr double kAgainstWarnCosine = 0.98;
inline constexpr double kAgainstWarnCosinePlain = 0.999;

struct WeightDifference {
  std::string module;
  std::optional<int64_t> layer;
  double cosine = 1;       // 1 for two zero tensors, 0 where one is zero
  double relative_l2 = 0;  // |a - b| / |b|; infinite where only b is zero
  double rms_ratio = 1;    // rms(a) / rms(b)
  std::string ratio_name;  // "1.25", "2", "1/4", "g^2": a clean factor by name; else empty
  int64_t worst_row = -1;  // -1 where no block differs
  int64_t worst_block = -1;
  // Relative L2 of that block of 16, whose norm is taken as at least a sixteenth of its row's
  // average, so that blocks of next to nothing do not hide the others. Infinite where the block has
  // a value that is no finite number.
  double worst_block_error = 0;

  Scheme scheme = Scheme::kBf16;
  Scheme reference_scheme = Scheme::kBf16;
  std::string reference_module;  // where it has another name there (fused, tied); else empty
  std::optional<float> g;        // largest multiplier of these rows, or of the reference's
  int64_t n_nonfinite = 0;       // values that are no finite numbers: left out of the sums above
  int64_t n_nonfinite_reference = 0;
  double swapped_cosine = 0;  // with each pair of neighboring columns exchanged
};

struct AgainstReport {
  std::vector<WeightDifference> tensors;  // worst first
  std::vector<std::string> only_here;     // modules, and plain tensors, the reference has not
  std::vector<std::string> only_reference;
  std::vector<std::string> not_compared;  // plain tensors whose stored forms cannot be
  int64_t n_plain = 0;                    // norms, biases, ... that both have
  int64_t n_plain_equal = 0;
  std::vector<Finding> findings;  // A1 ... (against a reference)
};

// A9 for every tensor and config that differs, where most tensors of the two are the same bytes;
// nothing where they are not copies at all.
std::vector<Finding> compare_copies(const Checkpoint& checkpoint, const Checkpoint& reference);

AgainstReport compare_weights(const Checkpoint& checkpoint, const Checkpoint& reference,
                              ThreadPool& pool);

}  // namespace sextant
