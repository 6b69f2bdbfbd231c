// The known split patterns (pretokenize_known.h). Each function is its pattern's alternatives in
// their order; comments give the alternative. Greedy parts never have to give back more than what
// the comment says.
#include "text/pretokenize_known.h"

#include <algorithm>
#include <string>

#include "text/tokenizer_utf8.h"

namespace sextant {

void CharText::assign(std::string_view text) {
  code.clear();
  cls.clear();
  begin.clear();
  const CharTable& table = char_table();
  size_t at = 0;
  while (at < text.size()) {
    begin.push_back(static_cast<uint32_t>(at));
    code.push_back(next_char(text, at));
    cls.push_back(table[code.back()]);
  }
  begin.push_back(static_cast<uint32_t>(text.size()));
}

namespace {

bool is_l(CharClass c) { return in_set(c, kSetL); }
bool is_lm(CharClass c) { return in_set(c, kSetL | kSetM); }
bool is_n(CharClass c) { return in_set(c, kSetN); }
bool is_ps(CharClass c) { return in_set(c, kSetP | kSetS); }
bool is_space(CharClass c) { return (c & kCharSpace) != 0; }
bool is_newline(uint32_t c) { return c == '\r' || c == '\n'; }

// The end of the run of characters from i on whose class holds.
template <class Test>
size_t run(const CharText& t, size_t i, Test test) {
  while (i < t.size() && test(t.cls[i])) ++i;
  return i;
}
// At most `digits` numbers: \p{N}{1,digits}.
template <int digits>
size_t run_digits(const CharText& t, size_t i) {
  const size_t limit = std::min(t.size(), i + digits);
  while (i < limit && is_n(t.cls[i])) ++i;
  return i;
}
size_t run_newlines(const CharText& t, size_t i) {
  while (i < t.size() && is_newline(t.code[i])) ++i;
  return i;
}

// 's|'t|'re|'ve|'m|'ll|'d at i, or i. Without case: ſ is an s, too; the others have no such twin.
size_t contraction(const CharText& t, size_t i, bool any_case) {
  if (i + 1 >= t.size() || t.code[i] != '\'') return i;
  const auto letter = [&](size_t at) -> uint32_t {
    const uint32_t c = at < t.size() ? t.code[at] : 0;
    if (!any_case) return c;
    if (c == 0x17F) return 's';
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
  };
  const uint32_t a = letter(i + 1);
  const uint32_t b = letter(i + 2);
  if (a == 's' || a == 't') return i + 2;
  if ((a == 'r' || a == 'v') && b == 'e') return i + 3;
  if (a == 'm') return i + 2;
  if (a == 'l' && b == 'l') return i + 3;
  return a == 'd' ? i + 2 : i;
}

//  \s+(?!\S)|\s+  at a space i: the run less its last character where a word follows.
size_t spaces(const CharText& t, size_t i) {
  const size_t end = run(t, i, is_space);
  return end < t.size() && end - i > 1 ? end - 1 : end;
}

//  \s*[\r\n]+|\s+(?!\S)|\s+  at a space i: up to the last line end of the run, where it has one.
size_t lines_or_spaces(const CharText& t, size_t i) {
  const size_t end = run(t, i, is_space);
  for (size_t j = end; j > i; --j)
    if (is_newline(t.code[j - 1])) return j;
  return end < t.size() && end - i > 1 ? end - 1 : end;
}

}  // namespace

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t split_gpt2(const CharText& t, size_t i) {
  if (const size_t end = contraction(t, i, false); end > i) return end;
  const size_t j = t.code[i] == ' ' && i + 1 < t.size() ? i + 1 : i;
  const CharClass c = t.cls[j];
  if (is_l(c)) return run(t, j, is_l);
  if (is_n(c)) return run(t, j, is_n);
  if (!is_space(c))
    return run(t, j, [](CharClass x) { return !is_space(x) && !is_l(x) && !is_n(x); });
  return spaces(t, i);
}

namespace {

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,digits}| ?[^\s W \p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+      W is \p{L}, or with marks [\p{L}\p{M}]
template <int digits, bool marks>
size_t split_llama3(const CharText& t, size_t i) {
  constexpr auto is_w = marks ? is_lm : is_l;
  if (const size_t end = contraction(t, i, true); end > i) return end;
  const CharClass c = t.cls[i];
  // The optional first character may itself be a W (a mark): then the word is longest with it.
  if (is_w(c)) return run(t, i, is_w);
  if (!is_n(c) && !is_newline(t.code[i]) && i + 1 < t.size() && is_w(t.cls[i + 1]))
    return run(t, i + 1, is_w);
  if (is_n(c)) return run_digits<digits>(t, i);
  const auto other = [](CharClass x) { return !is_space(x) && !is_w(x) && !is_n(x); };
  const size_t j = t.code[i] == ' ' && i + 1 < t.size() ? i + 1 : i;
  if (other(t.cls[j])) return run_newlines(t, run(t, j, other));
  return lines_or_spaces(t, i);
}

constexpr CategorySet kUpper =
    category_set(Category::kLu, Category::kLt, Category::kLm, Category::kLo) | kSetM;
constexpr CategorySet kLower = category_set(Category::kLl, Category::kLm, Category::kLo) | kSetM;
bool is_upper(CharClass c) { return in_set(c, kUpper); }
bool is_lower(CharClass c) { return in_set(c, kLower); }

// U*l+ at i, U and l overlapping: where nothing of l follows the run of U, the run gives back to
// its last character that is an l, too.
size_t upper_then_lower(const CharText& t, size_t i) {
  const size_t upper_end = run(t, i, is_upper);
  if (upper_end < t.size() && is_lower(t.cls[upper_end])) return run(t, upper_end, is_lower);
  for (size_t j = upper_end; j > i; --j)
    if (is_lower(t.cls[j - 1])) return j;
  return i;
}

// X?U*l+K?|X?U+l*K?|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
// X [^\r\n\p{L}\p{N}], U [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], l [\p{Ll}\p{Lm}\p{Lo}\p{M}], K the
// contractions in any case (only with_contractions)
template <int digits, bool with_contractions>
size_t split_cased(const CharText& t, size_t i) {
  const CharClass c = t.cls[i];
  const bool is_x = !is_l(c) && !is_n(c) && !is_newline(t.code[i]);
  const auto finish = [&](size_t end) {
    return with_contractions ? contraction(t, end, true) : end;
  };
  // With X taken, then without: only a mark can be read both ways.
  for (size_t skip = is_x ? 1 : 0;; --skip) {
    const size_t j = i + skip;
    if (const size_t end = j < t.size() ? upper_then_lower(t, j) : j; end > j) return finish(end);
    if (skip == 0) break;
  }
  for (size_t skip = is_x ? 1 : 0;; --skip) {
    const size_t j = i + skip;
    if (const size_t end = run(t, j, is_upper); end > j) return finish(run(t, end, is_lower));
    if (skip == 0) break;
  }
  if (is_n(c)) return run_digits<digits>(t, i);
  const auto other = [](CharClass x) { return !is_space(x) && !is_l(x) && !is_n(x); };
  const size_t j = t.code[i] == ' ' && i + 1 < t.size() ? i + 1 : i;
  if (other(t.cls[j])) {
    size_t end = run(t, j, other);
    while (end < t.size() && (is_newline(t.code[end]) || t.code[end] == '/')) ++end;
    return end;
  }
  return lines_or_spaces(t, i);
}

bool is_ascii_letter(uint32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z' && c < 0x80; }
bool is_ascii_punctuation(uint32_t c) {
  return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

// [一-龥぀-ゟ゠-ヿ]+
size_t split_cjk(const CharText& t, size_t i) {
  const auto inside = [](uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
  };
  while (i < t.size() && inside(t.code[i])) ++i;
  return i;
}

// [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+      leaves digits and control characters unmatched
size_t split_deepseek(const CharText& t, size_t i) {
  const CharClass c = t.cls[i];
  const bool more = i + 1 < t.size();
  if (is_ascii_punctuation(t.code[i]) && more && is_ascii_letter(t.code[i + 1])) {
    size_t end = i + 1;
    while (end < t.size() && is_ascii_letter(t.code[end])) ++end;
    return end;
  }
  if (is_lm(c)) return run(t, i, is_lm);
  if (!is_newline(t.code[i]) && !is_ps(c) && more && is_lm(t.cls[i + 1]))
    return run(t, i + 1, is_lm);
  const size_t j = t.code[i] == ' ' && more ? i + 1 : i;
  if (is_ps(t.cls[j])) return run_newlines(t, run(t, j, is_ps));
  return is_space(c) ? lines_or_spaces(t, i) : i;
}

struct KnownPattern {
  std::string_view pattern;
  Splitter splitter;
};

// The pieces that the patterns share, joined by the compiler.
#define SX_CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define SX_LINES_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define SX_LLAMA3(number)                                        \
  "(?i:" SX_CONTRACTIONS R"()|[^\r\n\p{L}\p{N}]?\p{L}+|)" number \
  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" SX_LINES_SPACES
#define SX_U R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define SX_LOW R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define SX_X R"([^\r\n\p{L}\p{N}]?)"
#define SX_CASED(k, number)                                            \
  SX_X SX_U "*" SX_LOW "+" k "|" SX_X SX_U "+" SX_LOW "*" k "|" number \
            R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" SX_LINES_SPACES
#define SX_N3 R"(\p{N}{1,3})"
#define SX_N1 R"(\p{N})"

constexpr KnownPattern kKnown[] = {
    {SX_CONTRACTIONS R"(| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", split_gpt2},
    {SX_LLAMA3(SX_N3), split_llama3<3, false>},
    {SX_LLAMA3(SX_N1), split_llama3<1, false>},
    {"(?i:" SX_CONTRACTIONS
     R"()|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" SX_LINES_SPACES,
     split_llama3<1, true>},
    {SX_CASED("(?i:" SX_CONTRACTIONS ")?", SX_N3), split_cased<3, true>},
    {SX_CASED("", SX_N1), split_cased<1, false>},
    {SX_CASED("", SX_N3), split_cased<3, false>},
    {SX_N3, run_digits<3>},
    {SX_N1, run_digits<1>},
    {"[一-龥぀-ゟ゠-ヿ]+", split_cjk},
    {R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
     R"(| ?[\p{P}\p{S}]+[\r\n]*)" SX_LINES_SPACES,
     split_deepseek},
};

}  // namespace

Splitter find_splitter(std::string_view pattern) {
  // Some files hold the line ends themselves, not their escapes; inside and outside of classes they
  // mean the same.
  std::string spelled;
  for (const char c : pattern) {
    if (is_newline(static_cast<uint32_t>(c)))
      spelled += c == '\r' ? "\\r" : "\\n";
    else
      spelled.push_back(c);
  }
  for (const KnownPattern& known : kKnown)
    if (known.pattern == spelled) return known.splitter;
  return nullptr;
}

}  // namespace sextant
