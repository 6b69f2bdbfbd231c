// Any bytes as a tokenizer.json, and as a text for those that load: nothing may crash, encoding
// must end, a stream must add up to what decode() gives. The input is the file, a zero byte, the
// text.
#include <string_view>

#include "base/check.h"
#include "io/json.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sextant;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto json = parse_json(input.substr(0, zero), "fuzz");
  if (!json) return 0;
  const auto tokenizer = Tokenizer::from_json(*json, "fuzz");
  if (!tokenizer) return 0;
  const std::string_view text =
      zero == std::string_view::npos ? "a B\xC3\xA9 12\n<s>" : input.substr(zero + 1);
  const auto ids = (*tokenizer)->encode(text, {.add_special = true});
  if (!ids) return 0;
  for (const int32_t id : *ids) SX_CHECK(id >= 0, "id {}", id);
  (*tokenizer)->decode(*ids, true);
  StreamDecoder stream(*tokenizer, false);
  for (const int32_t id : *ids) stream.push(id);
  stream.finish();
  return 0;
}
