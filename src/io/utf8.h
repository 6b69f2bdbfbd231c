// Decodes one UTF-8 sequence strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string_view>

namespace sextant {

struct Utf8Step {
  uint32_t code_point = 0;
  int n_bytes = 0;  // 0 where the bytes at this place are no character
};

constexpr Utf8Step decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const int n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < static_cast<size_t>(n)) return {};
  uint32_t code = lead & (0xFFU >> (n + 1));
  for (int i = 1; i < n; ++i) {
    const uint32_t next = byte(at + static_cast<size_t>(i));
    if ((next & 0xC0U) != 0x80U) return {};
    code = (code << 6) | (next & 0x3FU);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  if (overlong || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return {};
  return {code, n};
}

}  // namespace sextant
