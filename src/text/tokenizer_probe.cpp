// A test tool: answers a tokenizer's questions line by line for tests/oracle/test_tokenizers.py.
// In: {"text": ...} or {"ids": [...]}. Out: {"ids", "special", "plain"} (plain: special tokens stay
// text; with "short" in the question ids only), or {"text", "skip", "stream"}, or {"error"}. An
// argument: the tokenizer.json.
#include <iostream>

#include "io/ordered_json.h"
#include "text/tokenizer.h"

namespace sextant {
namespace {

Result<Json> answer(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view line) {
  SX_ASSIGN(const JsonValue json, parse_json(line, "the line"));
  if (const JsonValue* text = json.find("text")) {
    SX_ASSIGN(const auto ids, tokenizer->encode(text->as_string()));
    if (json.find("short") != nullptr) return Json{{"ids", ids}};
    SX_ASSIGN(const auto special, tokenizer->encode(text->as_string(), {.add_special = true}));
    SX_ASSIGN(const auto plain, tokenizer->encode(text->as_string(), {.parse_special = false}));
    return Json{{"ids", ids}, {"special", special}, {"plain", plain}};
  }
  std::vector<int32_t> ids;
  for (const JsonValue& id : json.find("ids")->array())
    ids.push_back(static_cast<int32_t>(id.as_int()));
  StreamDecoder stream(tokenizer, false);
  Json pieces = Json::array();
  for (const int32_t id : ids) pieces.push_back(stream.push(id));
  pieces.push_back(stream.finish());
  return Json{
      {"text", tokenizer->decode(ids)}, {"skip", tokenizer->decode(ids, true)}, {"stream", pieces}};
}

int run(const char* path) {
  const auto tokenizer = Tokenizer::from_file(path);
  if (!tokenizer) {
    std::cerr << tokenizer.error().text << "\n";
    return 3;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    const Result<Json> a = answer(*tokenizer, line);
    std::cout << (a ? *a : Json{{"error", a.error().text}}).dump() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace sextant

int main(int argc, char** argv) { return argc == 2 ? sextant::run(argv[1]) : 64; }
