#include "io/json_dom.h"

#include <algorithm>

#include "io/name_table.h"

namespace sextant {
namespace {

constexpr size_t kFewKeys = 16;  // up to here comparing all pairs is faster than a table

simdjson::error_code run_parser(simdjson::dom::parser& parser, std::string& text, int max_depth,
                                simdjson::dom::element& root) {
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  const size_t levels = static_cast<size_t>(max_depth) + 1;  // simdjson counts the scalar inside
  if (parser.capacity() < text.size() || parser.max_depth() != levels) {
    const auto error = parser.allocate(text.size(), levels);
    if (error != simdjson::SUCCESS) return error;
  }
  return parser.parse(text.data(), text.size(), false).get(root);
}

}  // namespace

tl::expected<simdjson::dom::element, JsonParseError> parse_dom(simdjson::dom::parser& parser,
                                                               std::string& text, int max_depth) {
  max_depth = std::clamp(max_depth, 1, kMaxJsonDepth);
  simdjson::dom::element root;
  auto error = text.empty() ? simdjson::EMPTY : run_parser(parser, text, max_depth, root);
  if (error == simdjson::SUCCESS) return root;
  if (error == simdjson::MEMALLOC)
    return tl::unexpected(JsonParseError{Code::kResources, {0, "not enough memory to parse it"}});
  std::vector<size_t> big;
  if (auto fault = find_json_fault(text, max_depth, &big))
    return tl::unexpected(JsonParseError{Code::kInput, std::move(*fault)});
  if (error == simdjson::NUMBER_ERROR && !big.empty()) {
    // "123456789012345678901" becomes "123456789012345678901.0".
    std::string widened;
    widened.reserve(text.size() + 2 * big.size() + simdjson::SIMDJSON_PADDING);
    size_t from = 0;
    for (const size_t end : big) {
      widened.append(text, from, end - from).append(".0");
      from = end;
    }
    widened.append(text, from);
    text = std::move(widened);
    error = run_parser(parser, text, max_depth, root);
    if (error == simdjson::SUCCESS) return root;
  }
  return tl::unexpected(JsonParseError{Code::kInput, {0, simdjson::error_message(error)}});
}

std::string_view kind_name(const simdjson::dom::element& value) {
  using simdjson::dom::element_type;
  switch (value.type()) {
    case element_type::NULL_VALUE: return "null";
    case element_type::BOOL: return "a boolean";
    case element_type::INT64:
    case element_type::UINT64: return "an integer";
    case element_type::DOUBLE: return "a fraction";
    case element_type::STRING: return "a string";
    case element_type::ARRAY: return "an array";
    case element_type::OBJECT: break;
  }
  return "an object";
}

std::optional<size_t> find_duplicate(const std::vector<std::string_view>& keys) {
  if (keys.size() <= kFewKeys) {
    for (size_t i = 1; i < keys.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (keys[i] == keys[j]) return i;
    return std::nullopt;
  }
  NameTable table;
  table.reserve(keys.size());
  const auto name_of = [&](uint32_t i) { return keys[i]; };
  for (size_t i = 0; i < keys.size(); ++i)
    if (table.insert(keys[i], static_cast<uint32_t>(i), name_of)) return i;
  return std::nullopt;
}

}  // namespace sextant
