// Code points, white space and case mappings as Python's str has them. Simple mappings come from
// utf8proc, the ones that change the number of code points from a generated table
// (tools/unicode/special_casing.py).
#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace sextant::jinja {
namespace {

struct SpecialCase {
  char32_t from;
  char32_t to[3];
};
#include "text/special_casing.inc"

template <size_t N>
const SpecialCase* find_special(const SpecialCase (&table)[N], char32_t c) {
  const auto* it =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const SpecialCase& row, char32_t x) { return row.from < x; });
  return it != std::end(table) && it->from == c ? it : nullptr;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void append_mapped(std::u32string& out, const SpecialCase* special, char32_t simple) {
  if (special == nullptr) {
    out.push_back(simple);
    return;
  }
  for (const char32_t c : special->to) {
    if (c != 0) out.push_back(c);
  }
}
char32_t simple_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
bool is_cased(char32_t c) {
  return is_cased_upper(c) || is_cased_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
  }
  return c == U'\'' || c == U'.' || c == U':' || c == 0xB7 || c == 0x2019;
}
// The final sigma rule: a sigma after a cased letter and not before one.
bool is_final_sigma(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}
void append_lower(std::u32string& out, std::u32string_view text, size_t at) {
  if (text[at] == 0x3A3) {
    out.push_back(is_final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else {
    append_mapped(out, find_special(kLower, text[at]), simple_lower(text[at]));
  }
}
void append_title(std::u32string& out, char32_t c) {
  append_mapped(out, find_special(kTitle, c), simple_upper(c));
}

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  const auto* p = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t n = utf8proc_iterate(p, left, &c);
    out.push_back(n > 0 ? static_cast<char32_t>(c) : U'\uFFFD');
    p += n > 0 ? n : 1;
    left -= n > 0 ? n : 1;
  }
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == U' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alpha(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_cased_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_cased_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_upper(std::string_view text) {
  const std::u32string points = decode_utf8(text);
  return std::any_of(points.begin(), points.end(), is_cased_upper) &&
         std::none_of(points.begin(), points.end(), is_cased_lower);
}
bool is_lower(std::string_view text) {
  const std::u32string points = decode_utf8(text);
  return std::any_of(points.begin(), points.end(), is_cased_lower) &&
         std::none_of(points.begin(), points.end(), is_cased_upper);
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (const char32_t c : decode_utf8(text))
    append_mapped(out, find_special(kUpper, c), simple_upper(c));
  return encode_utf8(out);
}

std::string lower(std::string_view text) {
  const std::u32string points = decode_utf8(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) append_lower(out, points, i);
  return encode_utf8(out);
}

std::string title(std::string_view text) {
  const std::u32string points = decode_utf8(text);
  std::u32string out;
  bool previous_cased = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (previous_cased) {
      append_lower(out, points, i);
    } else {
      append_title(out, points[i]);
    }
    previous_cased = is_cased(points[i]);
  }
  return encode_utf8(out);
}

std::string capitalize(std::string_view text) {
  const std::u32string points = decode_utf8(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      append_title(out, points[i]);
    } else {
      append_lower(out, points, i);
    }
  }
  return encode_utf8(out);
}

}  // namespace sextant::jinja
