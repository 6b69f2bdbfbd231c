// What a checkpoint has that engines treat differently: the facts behind each condition of an
// engine table. Only facts, no engine; engines.cpp joins them with the tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/diagnosis.h"
#include "doctor/engine_table.h"

namespace sextant {

struct EngineFact {
  std::string tensor;           // empty for the whole file
  std::string_view dialect;     // "modelopt", "compressed-tensors", "" for others
  bool experts = false;         // routed ones
  std::optional<double> value;  // what the message may quote
  double badness = 0;           // the worst is shown
  int64_t count = 1;
};

// The dialect of a linear by the names of its own tensors.
std::string_view engine_dialect(const Checkpoint& checkpoint, const LinearRecord& record);
bool in_experts(std::string_view name);
// By the last part of a tensor's name: a global scale of the weights, of the activations.
bool is_weight_scalar(std::string_view tensor);
bool is_input_scalar(std::string_view tensor);
// The module without its last component, and that component.
std::string_view module_parent(std::string_view module);
std::string_view module_last(std::string_view module);

// All instances of line.when. `family` picks the fused layers of the table, whose parts share one
// maximum (small-scales).
std::vector<EngineFact> engine_facts(const EngineLine& line, const EngineTable& table,
                                     std::string_view family, const Checkpoint& checkpoint,
                                     const Diagnosis& diagnosis);

// Blocks that Marlin sets to zero (nvfp4.md 1.7): scales are brought up by the largest power of two
// that keeps `max_byte` at most 448 (rescale, as for BF16 activations), then those below 2^-6 go.
// Of positive E4M3 bytes; a block that is zero anyway does not count.
int64_t flushed_blocks(const CodeStatistics& statistics, int max_byte, bool rescale);
int max_scale_byte(const CodeStatistics& statistics);  // 0 where there is none

}  // namespace sextant
