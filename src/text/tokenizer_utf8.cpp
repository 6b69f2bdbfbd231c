// Validity of UTF-8 and its repair (tokenizer_utf8.h).
#include "text/tokenizer_utf8.h"

#include <cstring>

namespace sextant {
namespace {

// The length of the character at `at`, or minus the length of the maximal part that must be
// replaced.
int sequence_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint32_t>(static_cast<uint8_t>(text[i])) : 0U;
  };
  const uint32_t lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range keeps overlong forms, surrogates and what is above U+10FFFF out.
  const uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(at + 1) < low || byte(at + 1) > high) return -1;
  for (int i = 2; i < n; ++i)
    if ((byte(at + static_cast<size_t>(i)) & 0xC0) != 0x80) return -i;
  return n;
}

// The first place from `at` on that is not ASCII.
size_t skip_ascii(std::string_view text, size_t at) {
  while (at + 8 <= text.size()) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080U) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

bool utf8_valid(std::string_view bytes) {
  size_t at = skip_ascii(bytes, 0);
  while (at < bytes.size()) {
    const int n = sequence_at(bytes, at);
    if (n < 0) return false;
    at = skip_ascii(bytes, at + static_cast<size_t>(n));
  }
  return true;
}

std::string utf8_lossy(std::string_view bytes) {
  if (utf8_valid(bytes)) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  size_t at = 0;
  while (at < bytes.size()) {
    const int n = sequence_at(bytes, at);
    if (n > 0) {
      out.append(bytes, at, static_cast<size_t>(n));
      at += static_cast<size_t>(n);
    } else {
      out += kReplacementChar;
      at += static_cast<size_t>(-n);
    }
  }
  return out;
}

}  // namespace sextant
