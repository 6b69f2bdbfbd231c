// What a Split, a Replace or a decoder looks for: a string, a known split pattern
// (pretokenize_known.h), or a regular expression that PCRE2 runs with bounds. Owns the translation
// of "pattern" in a tokenizer.json. Matches are found as Oniguruma's find_iter finds them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pretokenize_known.h"
#include "text/tokenizer_json.h"

namespace sextant {

inline constexpr size_t kMaxPatternBytes = 1 << 16;

// A part of a text, matched or between matches; in order, they cover the text.
struct MatchSpan {
  size_t begin, end;
  bool is_match;
};

class TextPattern {
 public:
  // {"String": ...} or {"Regex": ...}. allow_known: use the hand-written splitters.
  static Result<TextPattern> from_json(const JsonValue* json, const JsonPlace& place);
  static TextPattern of_splitter(Splitter splitter);
  static TextPattern of_string(std::string_view literal);
  TextPattern(TextPattern&&) noexcept;
  TextPattern& operator=(TextPattern&&) noexcept;
  ~TextPattern();

  // Appends the spans of text. chars: working memory. An error where PCRE2 reaches a limit.
  Status find(std::string_view text, CharText& chars, std::vector<MatchSpan>& spans) const;

 private:
  struct Regex;
  TextPattern();
  Status find_regex(std::string_view text, std::vector<MatchSpan>& spans) const;

  std::string literal_;
  Splitter splitter_ = nullptr;
  std::unique_ptr<Regex> regex_;
};

}  // namespace sextant
