// libFuzzer target: any bytes as JSON. What parses must survive writing and parsing again; what
// does not must be found at fault by the pass that words the message, at a place inside the text.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "io/json_fault.h"
#include "io/ordered_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sextant;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const JsonLimits limits{.max_bytes = 1 << 20, .max_depth = 32};
  if (static_cast<int64_t>(size) > limits.max_bytes) return 0;
  const auto value = parse_json(text, "fuzz", limits);
  const auto fault = find_json_fault(text, limits.max_depth);
  if (value) {
    SX_CHECK(!fault, "parsed, but at fault: {}", fault->text);
    const std::string written = dump_json(value->to_json());
    const auto again = parse_json(written, "again", limits);
    SX_CHECK(again.has_value(), "what was written does not parse");
    SX_CHECK(dump_json(again->to_json()) == written, "written twice, differently");
  } else if (fault) {
    SX_CHECK(fault->offset <= size, "fault at {} of {}", fault->offset, size);
  } else {
    SX_CHECK(value.error().text.find("twice") != std::string_view::npos,
             "refused without fault: {}", value.error().text);
  }
  return 0;
}
