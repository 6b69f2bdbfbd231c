#include "io/quote.h"

#include <fmt/format.h>

#include "io/utf8.h"

namespace sextant {
namespace {

// Characters that a terminal obeys instead of showing: C0, DEL, C1, line and paragraph separators,
// and what changes the direction of text.
bool is_unsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || (c >= 0x200E && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

void append_escaped(std::string& out, std::string_view text, char quote) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (step.n_bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[i]));
      ++i;
      continue;
    }
    if (step.code_point == '\n') {
      out += "\\n";
    } else if (step.code_point == '\t') {
      out += "\\t";
    } else if (is_unsafe(step.code_point)) {
      out += step.code_point < 0x80 ? fmt::format("\\x{:02x}", step.code_point)
                                    : fmt::format("\\u{{{:x}}}", step.code_point);
    } else {
      if (quote != 0 && (text[i] == quote || text[i] == '\\')) out += '\\';
      out.append(text.substr(i, static_cast<size_t>(step.n_bytes)));
    }
    i += static_cast<size_t>(step.n_bytes);
  }
}

}  // namespace

std::string quote_name(std::string_view name, size_t max_bytes) {
  std::string out = "'";
  if (name.size() <= max_bytes) {
    append_escaped(out, name, '\'');
    return out + "'";
  }
  size_t cut = max_bytes;
  while (cut > 0 && (static_cast<uint8_t>(name[cut]) & 0xC0U) == 0x80U) --cut;
  append_escaped(out, name.substr(0, cut), '\'');
  return out + fmt::format("...' ({} bytes)", name.size());
}

std::string escape_text(std::string_view text) {
  std::string out;
  append_escaped(out, text, 0);
  return out;
}

}  // namespace sextant
