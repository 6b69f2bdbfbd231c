// What an engine would do with a checkpoint: tensors it would not load, scales it would merge,
// flush or read the other way round, and the symptom. Knowledge is data (engines/*.json, built in),
// each line with its source; what is not known says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "doctor/diagnosis.h"

namespace sextant {

struct EngineTable;  // engine_table.h

std::vector<std::string> engine_names();  // "vllm", "sglang", "trtllm", "llama.cpp", ...

struct EnginePrediction {
  std::string engine;
  std::string effect;  // "not loaded", "merged by max", "flushed", "saturated", "other convention"
  std::string
      symptom;         // "NaN", "zeros", "gain x 1.2545", "clipped", "refused", "not known", "none"
  std::string tensor;  // where the numbers are worst, else the first; empty for the whole file
  std::optional<int64_t> first_layer;  // where it shows first
  int64_t count = 1;
  std::string message;  // one sentence
  std::string source;   // where the knowledge is from
};

// In order of harm, a refused load first: nothing after it happens. An unknown engine is kUsage; an
// architecture without a table gives one prediction whose effect and symptom are "not known".
Result<std::vector<EnginePrediction>> predict(std::string_view engine, const Checkpoint& checkpoint,
                                              const Diagnosis& diagnosis);
// The same by a table of one's own (parse_engine_table).
std::vector<EnginePrediction> predict_by(const EngineTable& table, const Checkpoint& checkpoint,
                                         const Diagnosis& diagnosis);

}  // namespace sextant
