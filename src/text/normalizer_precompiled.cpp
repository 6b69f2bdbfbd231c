// The Precompiled normalizer: the character map that SentencePiece models carry, a double-array
// trie (Darts) over UTF-8 whose values point into a blob of strings. Applied to each grapheme
// shorter than six bytes, then to each character, and the shortest entry that begins there decides,
// as in the package (spm_precompiled). The map comes from a file: every index is checked.
#include <utf8proc.h>

#include <cstring>
#include <optional>
#include <vector>

#include "io/quote.h"
#include "text/normalizer.h"
#include "text/tokenizer_utf8.h"

namespace sextant {
namespace {

constexpr size_t kMaxMapBytes = size_t{64} << 20;
constexpr size_t kShortGrapheme = 6;

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    int v = 0;
    if (c >= 'A' && c <= 'Z')
      v = c - 'A';
    else if (c >= 'a' && c <= 'z')
      v = c - 'a' + 26;
    else if (c >= '0' && c <= '9')
      v = c - '0' + 52;
    else if (c == '+')
      v = 62;
    else if (c == '/')
      v = 63;
    else
      return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(v);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out.push_back(static_cast<char>((bits >> n_bits) & 0xFF));
    }
  }
  return out;
}

class Precompiled final : public Normalizer {
 public:
  // False where the bytes are no such map.
  bool load(std::string_view map) {
    uint32_t trie_bytes = 0;
    if (map.size() < 4) return false;
    std::memcpy(&trie_bytes, map.data(), 4);
    if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > map.size() - 4) return false;
    trie_.resize(trie_bytes / 4);
    std::memcpy(trie_.data(), map.data() + 4, trie_bytes);
    strings_ = map.substr(4 + trie_bytes);
    return utf8_valid(strings_);
  }

  Status apply(NormalText& t) const override {
    std::string out;
    out.reserve(t.text.size());
    for (size_t at = 0; at < t.text.size();) {
      const size_t end = grapheme_end(t.text, at);
      const std::string_view grapheme = std::string_view(t.text).substr(at, end - at);
      const auto whole = grapheme.size() < kShortGrapheme ? find(grapheme) : std::nullopt;
      if (whole) {
        out += *whole;
      } else {
        for (size_t i = 0; i < grapheme.size();) {
          const size_t n = char_bytes(grapheme[i]);
          const std::string_view c = grapheme.substr(i, n);
          out += find(c).value_or(c);
          i += n;
        }
      }
      if (at == 0 && out.empty()) t.begins_at_origin = false;
      at = end;
    }
    t.text = std::move(out);
    return {};
  }

 private:
  static size_t grapheme_end(std::string_view text, size_t at) {
    utf8proc_int32_t state = 0;
    auto left = static_cast<utf8proc_int32_t>(next_char(text, at));
    while (at < text.size()) {
      size_t next = at;
      const auto right = static_cast<utf8proc_int32_t>(next_char(text, next));
      if (utf8proc_grapheme_break_stateful(left, right, &state)) break;
      left = right;
      at = next;
    }
    return at;
  }

  // What the shortest key that text begins with becomes.
  std::optional<std::string_view> find(std::string_view text) const {
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); };
    size_t node = offset(trie_[0]);
    for (const char c : text) {
      const uint32_t byte = static_cast<uint8_t>(c);
      if (byte == 0) break;
      node ^= byte;
      if (node >= trie_.size()) break;
      const uint32_t unit = trie_[node];
      if ((unit & 0x800000FF) != byte) break;
      node ^= offset(unit);
      if ((unit & 0x100) == 0) continue;
      if (node >= trie_.size()) break;
      const size_t begin = trie_[node] & 0x7FFFFFFF;
      if (begin > strings_.size()) break;
      const size_t end = strings_.find('\0', begin);
      if (end == std::string::npos || !utf8_valid(view(begin, end))) break;
      return view(begin, end);
    }
    return std::nullopt;
  }

  std::string_view view(size_t begin, size_t end) const {
    return std::string_view(strings_).substr(begin, end - begin);
  }

  std::vector<uint32_t> trie_;
  std::string strings_;
};

}  // namespace

Result<std::unique_ptr<Normalizer>> load_precompiled(FieldReader& fields) {
  const std::string encoded = fields.text("precompiled_charsmap");
  SX_TRY(fields.finish());
  auto result = std::make_unique<Precompiled>();
  const auto map = encoded.size() <= kMaxMapBytes ? decode_base64(encoded) : std::nullopt;
  if (!map || !result->load(*map))
    return fail_in(fields.place().field("precompiled_charsmap"), Code::kInput,
                   "expected a character map of at most {} bytes in base64, found {} characters "
                   "that are none",
                   kMaxMapBytes, encoded.size());
  return result;
}

}  // namespace sextant
