// Scales for policy a4:warmup: out of a file of `sextant calibrate` (--input-scales), or measured
// on the built-in prompts before the model is used (--warmup) and kept beside the models of this
// user, under the checkpoint's hash.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "checkpoint/input_scales.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/load_model.h"
#include "model/model.h"

namespace sextant {

// --input-scales, and --warmup where the command has the whole model in memory.
void add_warmup_options(Command command, CommonOptions& common, bool whole_model);

bool takes_warmup(const Policy& policy);  // some rule is a4:warmup

// What is fed, and where it is from.
struct CalibrationInput {
  std::vector<std::vector<int32_t>> sequences;
  CalibrationText text;
};
// Each built-in prompt as `run` would give it to the model, cut at the window; at most `most` of
// them (0: all).
Result<CalibrationInput> builtin_input(const LoadedModel& loaded, int64_t window, int64_t most);
std::string text_sha256(std::string_view text);

// For load_model: policies and scales, or who measures them. `loaded` needs its root, pool and
// tokenizer, and like the checkpoint lives until the model is loaded. kInput where the file is of
// another model.
Status prepare_warm_up(const CommonOptions& common, const Checkpoint& checkpoint,
                       const LoadedModel& loaded, ModelOptions& options);

}  // namespace sextant
