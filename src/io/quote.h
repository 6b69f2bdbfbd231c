// How names that came from a file stand in a message: in single quotes, with everything escaped
// that could forge a line, move a cursor or reorder the text, and cut to a readable length. Names
// are data: they are shown, never used as a path.
#pragma once

#include <string>
#include <string_view>

namespace sextant {

// 'model.norm.weight'; control and direction characters as \n, \x1b, \u{202e}; bytes that are not
// UTF-8 as \xff; longer than max_bytes: the beginning, then "..." and the length.
std::string quote_name(std::string_view name, size_t max_bytes = 120);

// The same without quotes and cut, for file names in front of a message.
std::string escape_text(std::string_view text);

}  // namespace sextant
