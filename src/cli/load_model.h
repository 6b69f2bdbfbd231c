// A model that is ready to run, with what commands need beside it: its tokenizer, its sampling
// defaults, the pool it runs on. Says on standard error what the load found.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/directory.h"
#include "cli/common.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace sextant {

// What generation_config.json wishes for sampling, where it says so.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int32_t> top_k;
};

struct LoadedModel {
  std::filesystem::path root;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<const Model> model;
  std::vector<std::string> policies;  // that it runs under; {"a16"} where none was asked for
  std::shared_ptr<const Tokenizer> tokenizer;  // nullptr where the directory has none
  GenerationDefaults generation;
  double load_s = 0;
};

// Opens a checkpoint; its errors, but for those allowed, refuse it (kModel) and are listed with -v.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& typed,
                                                    std::vector<Allowance> allowed = {});
// A file to be written must not take the place of anything the model is read from, through links or
// not (kUsage). "" is no file.
Status check_output_file(const std::string& page, const Checkpoint& checkpoint);
// stages_on_demand: bound and checked, but nothing packed (ModelOptions).
Result<LoadedModel> load_model(const CommonOptions& common, const std::string& typed,
                               bool stages_on_demand = false);
// The tokenizer, or an error that says what is missing.
Result<std::shared_ptr<const Tokenizer>> need_tokenizer(const LoadedModel& loaded);

// What a model is scored on: a text, tokenized without BOS, or ids. One of both files (kUsage).
struct ScoredText {
  std::string text_file;
  std::string ids_file;
};
Status check_scored_text(const ScoredText& files);
Result<std::vector<int32_t>> read_scored_text(const ScoredText& files, const LoadedModel& loaded);

// Warnings once, notes with --verbose.
void show_findings(std::span<const Finding> findings);

}  // namespace sextant
