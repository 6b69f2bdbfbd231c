// The alphabet of byte-level tokenizers: a printable character for each byte, GPT-2's table. The
// printable Latin-1 characters stand for themselves, the other 68 bytes become U+0100 and up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sextant {

struct ByteAlphabet {
  std::array<uint16_t, 256> code{};   // byte -> code point
  std::array<int16_t, 0x144> byte{};  // code point -> byte, -1 where there is none

  constexpr ByteAlphabet() {
    for (auto& b : byte) b = -1;
    uint16_t next = 0x100;
    for (uint16_t b = 0; b < 256; ++b) {
      const bool printable =
          (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      code[b] = printable ? b : next++;
      byte[code[b]] = static_cast<int16_t>(b);
    }
  }
};
inline constexpr ByteAlphabet kByteAlphabet;

// Appends each byte's character (one or two bytes of UTF-8).
inline void append_byte_chars(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    const uint32_t code = kByteAlphabet.code[static_cast<uint8_t>(c)];
    if (code < 0x80) {
      out.push_back(static_cast<char>(code));
    } else {
      out.push_back(static_cast<char>(0xC0 | (code >> 6)));
      out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
  }
}

}  // namespace sextant
