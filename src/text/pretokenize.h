// The pre-tokenizer of a tokenizer.json: cuts a normalized text into the words that the model sees
// one by one. Owns the kinds of pre-tokenizers and the behaviors of a split; patterns are in
// tokenizer_pattern.h. Words never overlap and keep their order.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_pattern.h"

namespace sextant {

// A text and the words in it. Splitting moves the words' ends; rewriting (ByteLevel, Metaspace)
// makes a new text.
struct Words {
  struct Word {
    size_t begin, end;
    bool at_origin;  // its first character comes from the first one of the whole input
  };
  std::string text;
  std::vector<Word> words;
  // Working memory.
  CharText chars;
  std::vector<MatchSpan> spans;
  std::string next_text;
  std::vector<Word> next_words;

  std::string_view view(const Word& w) const {
    return std::string_view(text).substr(w.begin, w.end - w.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status apply(Words& words) const = 0;
};

Result<std::unique_ptr<PreTokenizer>> load_pretokenizer(const JsonValue& json,
                                                        const JsonPlace& place);

// Metaspace stands in decoders, too.
struct MetaspaceOptions {
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  std::string replacement;  // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
Result<MetaspaceOptions> read_metaspace(FieldReader& fields);

}  // namespace sextant
