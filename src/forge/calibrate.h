// Input scales from running text: sequences through a model with a probe at the input of every
// linear, and the multipliers that follow (nvfp4.md 4.3; docs/calibration.md). Measures and
// chooses; text becomes sequences elsewhere, and what is found is written by input_scales.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/directory.h"
#include "checkpoint/input_scales.h"
#include "model/model.h"

namespace sextant {

inline constexpr double kMostHeadroom = 1024;  // nvfp4.md 4.1: free up to there, not above

struct CalibrateOptions {
  double headroom = 8;  // of the measured amax, 1 to kMostHeadroom
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(int64_t done, int64_t total)> progress;  // tokens
};

// Every linear of the model has an entry; what names the run (version, model, policies, where the
// text is from) is left to the caller. checkpoint: what the model was loaded from. kUsage for a
// headroom that cannot be; kInput for no sequence, for one that is empty or longer than the model
// takes, or for ids that it has not; kModel where an input is not finite, naming the
// first bad tensor; kCancelled.
Result<InputScales> calibrate(const Model& model, const Checkpoint& checkpoint,
                              std::span<const std::vector<int32_t>> sequences,
                              const CalibrateOptions& options, ThreadPool& pool);

// Consecutive windows without overlap, the last one shorter and left out below 2 tokens, at most
// max_windows of them (0: all).
std::vector<std::vector<int32_t>> calibration_windows(std::span<const int32_t> ids, int64_t window,
                                                      int64_t max_windows);

// The stored scale is for inputs so much larger that what came by lies below r = kLowestRatio,
// where trace alarms: it would flush them to zero, and is most likely a divisor stored as a
// multiplier.
constexpr double kLowestRatio = 0x1p-12;  // nvfp4.md 6.2
bool is_stored_far_off(const InputScaleEntry& entry);

// From what was measured and stored: g and source of every entry, and `unreached`. The larger of
// headroom * measured amax and stored amax is kept, unless the latter is far off. An expert of a
// layer in `expert_tokens` that no token chose keeps what is stored, else takes the largest g of
// the layer's other experts.
void choose_multipliers(InputScales& scales);

// The text of `--text builtin`: prompts of many kinds and lengths, written for this.
std::span<const std::string_view> builtin_prompts();

}  // namespace sextant
