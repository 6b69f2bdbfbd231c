#include "io/json_dom.h"

#include <algorithm>
#include <numeric>

namespace sextant {
namespace {

constexpr size_t kFewKeys = 16;  // below it comparing all pairs is faster than sorting

simdjson::error_code run_parser(simdjson::dom::parser& parser, std::string& text, int max_depth,
                                simdjson::dom::element& root) {
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  if (parser.capacity() < text.size() || parser.max_depth() != static_cast<size_t>(max_depth)) {
    const auto error = parser.allocate(text.size(), static_cast<size_t>(max_depth));
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

std::optional<size_t> find_duplicate(const std::vector<std::string_view>& keys) {
  if (keys.size() <= kFewKeys) {
    for (size_t i = 1; i < keys.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (keys[i] == keys[j]) return i;
    return std::nullopt;
  }
  // Sorting rather than hashing: a file cannot choose keys that make it slow. The first eight bytes
  // as one number decide most comparisons.
  struct Entry {
    uint64_t head;
    uint32_t idx;
  };
  std::vector<Entry> order(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    uint64_t head = 0;
    for (size_t b = 0; b < 8; ++b)
      head = head << 8 | (b < keys[i].size() ? static_cast<uint8_t>(keys[i][b]) : 0U);
    order[i] = {head, static_cast<uint32_t>(i)};
  }
  std::sort(order.begin(), order.end(), [&](const Entry& a, const Entry& b) {
    if (a.head != b.head) return a.head < b.head;
    const int by_key = keys[a.idx].compare(keys[b.idx]);
    return by_key != 0 ? by_key < 0 : a.idx < b.idx;
  });
  std::optional<size_t> first;
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i].head == order[i - 1].head && keys[order[i].idx] == keys[order[i - 1].idx] &&
        (!first || order[i].idx < *first))
      first = order[i].idx;
  return first;
}

}  // namespace sextant
