// Private to io/: where and why a text is no JSON. simdjson says only that something is wrong; this
// second, slow pass finds the first fault for the message. It also finds the integers beyond 64
// bits, which real files hold (a "model_max_length" of 1e30 written out) and simdjson refuses.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sextant {

struct JsonFault {
  size_t offset = 0;
  std::string text;  // "expected ',' or '}', found 'x'"
};

// The first fault of text, nullopt where there is none. Invalid UTF-8 anywhere comes first. ends of
// integers outside [INT64_MIN, UINT64_MAX] are appended to big_integer_ends.
std::optional<JsonFault> find_json_fault(std::string_view text, int max_depth,
                                         std::vector<size_t>* big_integer_ends = nullptr);

struct LineColumn {
  size_t line = 1;
  size_t column = 1;  // in characters
};
LineColumn line_column(std::string_view text, size_t offset);

}  // namespace sextant
