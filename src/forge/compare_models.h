// Two models on the same ids, a stage at a time: the embedding, each layer, the head. At every tap
// B's stage is held against A's, both given what A's stream has there, so that a stage's error is
// its own; beside that each model's stream runs free, and what they end in is scored like `eval`
// does. Never more than one stage of each is in memory.
//
// Both streams are kept whole: 2 * n_tokens * d_model floats, bounded by max_windows.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "forge/difference_cause.h"
#include "forge/explained_error.h"
#include "forge/scores.h"
#include "forge/tap_difference.h"

namespace sextant {

struct CompareModelsOptions {
  int64_t window = 512;
  int64_t max_windows = 16;  // the first so many; 0: all
  int64_t n_worst = 8;       // positions of the largest KL that are listed
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(int64_t done, int64_t total)> progress;  // tokens times stages
};

struct Divergence {
  ComparedTap tap;
  std::string ratio;           // of the tap, where it is a clean one
  bool in_own_stream = false;  // of B, not of its stage on A's: there is nothing of A beside it
  DifferenceCause cause;
};

struct StageReport {
  int64_t stage = 0;
  std::vector<ComparedTap> taps;  // in execution order
  // The first tap that is not finite in one of the two, else the first that stands out.
  std::optional<Divergence> divergence;
  // How far the two streams are apart behind this stage; of the head, their logits.
  DifferenceOfRows drift;
  std::optional<double> same_experts;
  int64_t weight_bytes_a = 0;  // resident while it ran
  int64_t weight_bytes_b = 0;
};

struct CompareReport {
  std::vector<StageReport> stages;
  // The first tap where anything differs at all; none: the models are the same, bit for bit.
  std::optional<Divergence> first_difference;
  // Where B's own stream stops being finite, if B's stages are finite on A's.
  std::optional<Divergence> bad_stream;
  EvalResult scores;    // of B, against A
  bool is_bad = false;  // something is not finite
  // In execution order, but what is not finite before what is: of each stage the first tap that
  // stands out, and bad_stream.
  std::vector<const Divergence*> divergences() const;
};

// kUsage for a window below 2 or too long; kInput for ids out of range or too few, and for models
// of different shapes; kUnsupported for a family that cannot run in stages; kCancelled. Models are
// best loaded with stages_on_demand.
Result<CompareReport> compare_models(const ComparedModel& a, const ComparedModel& b,
                                     std::span<const int32_t> ids,
                                     const CompareModelsOptions& options, ThreadPool& pool);

}  // namespace sextant
