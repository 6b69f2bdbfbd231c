// NFC, NFD, NFKC and NFKD (Unicode 3.11) with utf8proc's character data, less what is newer than
// the package's version: such code points are inert. Stable in time: a run of combining marks of
// any length is sorted, not inserted.
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "text/normalizer.h"
#include "text/tokenizer_utf8.h"
#include "text/unicode_tables.h"

namespace sextant {
namespace {

constexpr uint32_t kHangulS = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr uint32_t kNHangulL = 19, kNHangulV = 21, kNHangulT = 28;
constexpr uint32_t kNHangulS = kNHangulL * kNHangulV * kNHangulT;

struct Mark {
  uint32_t code;
  int32_t combining_class;
};

int32_t combining_class(uint32_t c) {
  if (c < 0x300 || (char_table()[c] & kCharInert) != 0) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// The full decomposition of one code point; Hangul by arithmetic inside utf8proc.
size_t decompose(uint32_t c, bool compat, std::array<utf8proc_int32_t, 32>& out) {
  if (c < 0xA0 || (char_table()[c] & kCharInert) != 0) {
    out[0] = static_cast<utf8proc_int32_t>(c);
    return 1;
  }
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t n = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), out.data(), static_cast<utf8proc_ssize_t>(out.size()),
      static_cast<utf8proc_option_t>(options), nullptr);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

// (first, second) -> composed, made once from the decompositions: a code point composes if its
// canonical decomposition has two parts at the top level and utf8proc composes them again.
class Compositions {
 public:
  Compositions() {
    std::array<utf8proc_int32_t, 32> parts;
    for (uint32_t c = 0xC0; c < 0x30000; ++c) {
      if ((c >= kHangulS && c < kHangulS + kNHangulS) || (c >= 0xD800 && c < 0xE000)) continue;
      const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (p->decomp_seqindex == UINT16_MAX || (char_table()[c] & kCharInert) != 0) continue;
      const size_t n = decompose(c, false, parts);
      if (n < 2) continue;
      std::array<utf8proc_int32_t, 32> again = parts;
      const auto left = utf8proc_normalize_utf32(
          again.data(), static_cast<utf8proc_ssize_t>(n),
          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (left != 1 || again[0] != static_cast<utf8proc_int32_t>(c)) continue;
      again = parts;  // the first n-1 compose to the first of the pair
      utf8proc_int32_t first = parts[0];
      if (n > 2) {
        if (utf8proc_normalize_utf32(
                again.data(), static_cast<utf8proc_ssize_t>(n - 1),
                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE)) != 1)
          continue;
        first = again[0];
      }
      pairs_[key(static_cast<uint32_t>(first), static_cast<uint32_t>(parts[n - 1]))] = c;
    }
  }

  // 0 where the two do not compose.
  uint32_t find(uint32_t first, uint32_t second) const {
    const auto it = pairs_.find(key(first, second));
    return it == pairs_.end() ? 0 : it->second;
  }

 private:
  static uint64_t key(uint32_t a, uint32_t b) { return (uint64_t{a} << 32) | b; }
  std::unordered_map<uint64_t, uint32_t> pairs_;
};

uint32_t compose_pair(uint32_t a, uint32_t b) {
  static const Compositions table;
  if (a >= kHangulL && a < kHangulL + kNHangulL && b >= kHangulV && b < kHangulV + kNHangulV)
    return kHangulS + ((a - kHangulL) * kNHangulV + (b - kHangulV)) * kNHangulT;
  if (a >= kHangulS && a < kHangulS + kNHangulS && (a - kHangulS) % kNHangulT == 0 &&
      b > kHangulT && b < kHangulT + kNHangulT)
    return a + (b - kHangulT);
  return table.find(a, b);
}

// Canonical composition in place (Unicode D117): each character that is not blocked joins the last
// starter before it.
void compose(std::vector<Mark>& marks) {
  size_t out = 0;
  size_t starter = 0;
  bool have_starter = false;
  int32_t last_class = -1;  // of what stands between the starter and here; -1: nothing
  for (size_t i = 0; i < marks.size(); ++i) {
    const Mark m = marks[i];
    if (have_starter && last_class < m.combining_class) {
      if (const uint32_t c = compose_pair(marks[starter].code, m.code); c != 0) {
        marks[starter].code = c;
        continue;
      }
    }
    marks[out] = m;
    if (m.combining_class == 0) {
      starter = out;
      have_starter = true;
      last_class = -1;
    } else {
      last_class = m.combining_class;
    }
    ++out;
  }
  marks.resize(out);
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  // Below these bounds nothing changes: U+0300 for NFC, U+00C0 for NFD, U+00A0 with compatibility.
  const uint32_t plain = compat ? 0xA0 : composed ? 0x300 : 0xC0;
  size_t at = 0;
  while (at < text.size()) {
    const size_t here = at;
    if (next_char(text, at) >= plain) {
      at = here;
      break;
    }
  }
  if (at == text.size()) return std::string(text);

  std::vector<Mark> marks;
  marks.reserve(text.size());
  std::array<utf8proc_int32_t, 32> parts;
  for (size_t i = 0; i < text.size();) {
    const size_t n = decompose(next_char(text, i), compat, parts);
    for (size_t k = 0; k < n; ++k) {
      const auto c = static_cast<uint32_t>(parts[k]);
      marks.push_back({c, combining_class(c)});
    }
  }
  for (size_t i = 0; i < marks.size();) {
    if (marks[i].combining_class == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < marks.size() && marks[end].combining_class != 0) ++end;
    std::stable_sort(
        marks.begin() + static_cast<ptrdiff_t>(i), marks.begin() + static_cast<ptrdiff_t>(end),
        [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
    i = end;
  }
  if (composed) compose(marks);
  std::string out;
  out.reserve(text.size());
  for (const Mark& m : marks) append_utf8(out, m.code);
  return out;
}

}  // namespace sextant
