// What is noteworthy about a checkpoint, in the form doctor prints (cli.md section 4). Loading
// collects findings too: an error finding stops the load, a warning is shown, a note is listed on
// request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sextant {

enum class Severity : uint8_t { kNote, kWarning, kError };

struct Finding {
  std::string id;    // stable for ever: "C13"
  std::string slug;  // "missing-global-scale"
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
};

}  // namespace sextant
