// Split patterns that real tokenizers use, as functions over classified characters: no pattern
// engine, no recursion, linear, and of the oracle's Unicode version (unicode_tables.h). A pattern
// is recognized by its exact text; others go to PCRE2 (tokenizer_pattern.h). Must find what
// Oniguruma finds, over every code point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/unicode_tables.h"

namespace sextant {

// A string taken apart: code points, their classes, and where each begins (one more at the end).
struct CharText {
  std::vector<uint32_t> code;
  std::vector<CharClass> cls;
  std::vector<uint32_t> begin;

  void assign(std::string_view text);  // valid UTF-8, below 4 GiB
  size_t size() const { return code.size(); }
};

// The end of the match that begins at character i, or i where none does.
using Splitter = size_t (*)(const CharText& text, size_t i);

// nullptr where the pattern is not a known one.
Splitter find_splitter(std::string_view pattern);

// The pattern inside ByteLevel with use_regex.
size_t split_gpt2(const CharText& text, size_t i);

}  // namespace sextant
