// UTF-8 as the tokenizer walks it. Inside the tokenizer every string is valid UTF-8, which
// utf8_lossy() makes sure of at the door; next_char() relies on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sextant {

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD

// Replaces each maximal part that cannot be a character by one U+FFFD, as Unicode recommends
// (3.9, U+FFFD substitution of maximal subparts) and Rust's from_utf8_lossy does.
std::string utf8_lossy(std::string_view bytes);
bool utf8_valid(std::string_view bytes);

// The bytes of a character by its first one. text must be valid.
inline size_t char_bytes(char lead) {
  const auto b = static_cast<uint8_t>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

// The character at `at`, which moves behind it. text must be valid.
inline uint32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(at);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    at += 2;
    return ((lead & 0x1F) << 6) | (byte(at - 1) & 0x3F);
  }
  if (lead < 0xF0) {
    at += 3;
    return ((lead & 0x0F) << 12) | ((byte(at - 2) & 0x3F) << 6) | (byte(at - 1) & 0x3F);
  }
  at += 4;
  return ((lead & 0x07) << 18) | ((byte(at - 3) & 0x3F) << 12) | ((byte(at - 2) & 0x3F) << 6) |
         (byte(at - 1) & 0x3F);
}

// Start of the character that ends at `end` (> 0). text must be valid.
inline size_t char_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

inline void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

// Characters of a valid string.
inline size_t count_chars(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace sextant
