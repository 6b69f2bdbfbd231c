// What is known about one engine, as data: engines/NAME.json, or any text of the same form. How to
// read and extend a table: docs/engines.md. Parsing only; engines.cpp evaluates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/json.h"

namespace sextant {

enum class EngineLineKind : uint8_t { kName, kFused, kCondition };
enum class NameAction : uint8_t { kLoad, kDrop, kRename, kUnknown };
enum class FusedRule : uint8_t {
  kOwn,      // "own": each part keeps its scale
  kMaxG,     // "max-g": the largest multiplier serves all
  kMaxBigG,  // "max-G": the largest divisor serves all, which is the smallest multiplier
  kFirst,    // "first": the first part's serves all
  kEqual,    // "equal": refused unless they are the same
  kRescale,  // "rescale": one multiplier, block scales rounded anew
  kUnknown,  // "unknown"
};

// One line of a table. Which fields count depends on its kind; the empty filters (families,
// dialect, place) let everything through.
struct EngineLine {
  EngineLineKind kind = EngineLineKind::kCondition;
  std::vector<std::string> families;  // "for"
  std::string dialect;                // "modelopt" or "compressed-tensors"
  std::string place;                  // "where": "experts" or "linear"
  // kName
  std::vector<std::string> names;  // shell patterns; {n_layers} stands for num_hidden_layers
  NameAction action = NameAction::kLoad;
  std::string to;
  // kFused
  std::vector<std::string> parts;
  bool of_input = false;
  FusedRule rule = FusedRule::kOwn;
  // kCondition
  std::string when;
  int64_t of = 0;        // the number of "...-not-multiple"
  bool rescale = false;  // small-scales: a power of two brings the maximum up to 448 first

  std::string effect;
  std::string symptom;
  std::string message;
  std::string source;
};

struct EngineTable {
  std::string engine;
  std::string as_of;                                         // what was read, and when
  std::map<std::string, std::vector<std::string>> families;  // architectures and model types
  std::vector<EngineLine> lines;

  // The family of a config.json, empty where the table has none.
  std::string family_of(const JsonValue* config) const;
  bool concerns(const EngineLine& line, std::string_view family) const;
};

// name: for messages. kInput, one sentence, for a table that is malformed.
Result<EngineTable> parse_engine_table(std::string_view text, std::string_view name);

// Every condition a line may name. One that is `usual`, holds, and has no line in a table is
// reported as not known.
struct EngineCondition {
  std::string_view name;
  bool usual = false;
  std::string_view what;  // for "it is not known what the engine does with ..."
};
std::span<const EngineCondition> engine_conditions();
const EngineCondition* find_engine_condition(std::string_view name);

// Smaller is worse; -1 for what is no symptom.
int harm_rank(std::string_view symptom);

struct EmbeddedTable {
  std::string_view engine;
  std::string_view text;
};
std::span<const EmbeddedTable> embedded_engine_tables();  // generated: engines.cmake

}  // namespace sextant
