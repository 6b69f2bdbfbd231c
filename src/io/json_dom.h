// Private to io/: strict parsing into simdjson's DOM, shared by json.cpp and safetensors.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include "base/result.h"
#include "io/json_fault.h"

namespace sextant {

inline constexpr int kMaxJsonDepth = 1000;  // whatever the limits say: readers recurse this deep

// A failed parse: where and why, or "not enough memory" (code kResources).
struct JsonParseError {
  Code code = Code::kInput;
  JsonFault fault;
};

// text may be changed (capacity for simdjson's padding, integers beyond 64 bits made doubles); the
// parser's strings do not point into it. simdjson does not look for duplicate keys: see below.
tl::expected<simdjson::dom::element, JsonParseError> parse_dom(simdjson::dom::parser& parser,
                                                               std::string& text, int max_depth);

std::string_view kind_name(const simdjson::dom::element& value);  // "an integer", "an object"

// The index of the first key that stands earlier in the list too, or nullopt.
std::optional<size_t> find_duplicate(const std::vector<std::string_view>& keys);

}  // namespace sextant
