#include "io/json_fault.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "io/quote.h"
#include "io/utf8.h"

namespace sextant {
namespace {

class FaultFinder {
 public:
  FaultFinder(std::string_view text, int max_depth, std::vector<size_t>* big)
      : text_(text), max_depth_(max_depth), big_(big) {}

  std::optional<JsonFault> run() {
    if (!check_utf8()) return fault_;
    skip_space();
    if (at_end()) return JsonFault{0, "expected JSON, found nothing"};
    // One turn a value; an explicit stack of open brackets instead of recursion.
    for (;;) {
      if (!value()) return fault_;
      if (opened_) continue;
      if (!after_value()) return fault_;
      if (open_.empty()) break;
    }
    skip_space();
    if (!at_end()) {
      set(at_, "expected the end after the JSON value, found {}", found());
      return fault_;
    }
    return std::nullopt;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  template <class... Args>
  bool set(size_t offset, fmt::format_string<Args...> format, Args&&... args) {
    fault_ = JsonFault{offset, fmt::format(format, std::forward<Args>(args)...)};
    return false;
  }

  // What stands at the current place, for "found ...".
  std::string found() const {
    if (at_end()) return "the end of the text";
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '+' || c == '.';
    };
    size_t n = 0;
    while (at_ + n < text_.size() && n < 24 && is_word(text_[at_ + n])) ++n;
    if (n == 0) n = static_cast<size_t>(std::max(1, decode_utf8(text_, at_).n_bytes));
    std::string shown = quote_name(text_.substr(at_, n));
    if (text_.substr(at_, 2) == "//" || text_.substr(at_, 2) == "/*" || text_[at_] == '#')
      shown += " (JSON has no comments)";
    else if (shown == "'NaN'" || shown == "'nan'" || shown == "'Infinity'" ||
             shown == "'-Infinity'" || shown == "'inf'" || shown == "'-inf'")
      shown += " (JSON has no NaN or infinity)";
    return shown;
  }

  bool check_utf8() {
    for (size_t i = 0; i < text_.size();) {
      if (static_cast<uint8_t>(text_[i]) < 0x80) {
        ++i;
        continue;
      }
      const Utf8Step step = decode_utf8(text_, i);
      if (step.n_bytes == 0)
        return set(i, "expected UTF-8, found the invalid byte 0x{:02x}",
                   static_cast<uint8_t>(text_[i]));
      if (i == 0 && step.code_point == 0xFEFF)
        return set(0, "expected JSON, found a byte-order mark: remove it");
      i += static_cast<size_t>(step.n_bytes);
    }
    return true;
  }

  void skip_space() {
    while (!at_end() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  bool value() {
    opened_ = false;
    skip_space();
    const char c = peek();
    if (at_end()) return set(at_, "expected a value, found the end of the text");
    if (c == '{' || c == '[') return open(c);
    if (c == '"') return string();
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      const size_t end = at_ + word.size();
      if (end < text_.size() && !is_delimiter(text_[end])) break;
      at_ = end;
      return true;
    }
    if (c == '\'')
      return set(at_, "expected a value, found a single quote (JSON strings take double quotes)");
    return set(at_, "expected a value, found {}", found());
  }

  static bool is_delimiter(char c) {
    return std::string_view(" \t\r\n,:[]{}").find(c) != std::string_view::npos;
  }

  bool open(char bracket) {
    const size_t begin = at_;
    ++at_;
    skip_space();
    const char close = bracket == '{' ? '}' : ']';
    if (peek() == close && !at_end()) {
      ++at_;
      return true;  // an empty one is a complete value
    }
    if (static_cast<int>(open_.size()) >= max_depth_)
      return set(begin, "too deep: expected at most {} nested objects and arrays", max_depth_);
    open_.push_back(bracket);
    opened_ = true;
    return bracket == '[' || key();
  }

  bool key() {
    skip_space();
    if (peek() != '"') return set(at_, "expected a key in double quotes, found {}", found());
    if (!string()) return false;
    skip_space();
    if (peek() != ':') return set(at_, "expected ':' after a key, found {}", found());
    ++at_;
    return true;
  }

  // Closes what ends here and moves to the next value; open_ empty afterwards means the document's
  // value is complete.
  bool after_value() {
    while (!open_.empty()) {
      skip_space();
      const bool object = open_.back() == '{';
      const char close = object ? '}' : ']';
      if (peek() == close) {
        ++at_;
        open_.pop_back();
        continue;
      }
      if (peek() != ',') return set(at_, "expected ',' or '{}', found {}", close, found());
      const size_t comma = at_++;
      skip_space();
      if (peek() == close) return set(comma, "expected another entry after ',', found '{}'", close);
      return !object || key();
    }
    return true;
  }

  bool string() {
    const size_t begin = at_++;
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<uint8_t>(c) < 0x20)
        return set(at_, "expected an escaped control character in a string, found a raw 0x{:02x}",
                   static_cast<uint8_t>(c));
      if (c == '\\') {
        if (!escape()) return false;
      } else {
        ++at_;
      }
    }
    return set(begin, "expected a closing quote for the string that begins here");
  }

  // The four hexadecimal digits at a place, or -1.
  int32_t hex4(size_t at) const {
    if (at + 4 > text_.size()) return -1;
    int32_t code = 0;
    for (const char c : text_.substr(at, 4)) {
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9')
        code = code * 16 + (c - '0');
      else if (lower >= 'a' && lower <= 'f')
        code = code * 16 + (lower - 'a' + 10);
      else
        return -1;
    }
    return code;
  }

  bool escape() {
    const size_t begin = at_++;
    const char c = peek();
    ++at_;
    if (c != 'u') {
      if (c == '\0' || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos)
        return set(begin, "expected a JSON escape after a backslash");
      return true;
    }
    const int32_t code = hex4(at_);
    if (code < 0) return set(begin, "expected four hexadecimal digits after \\u");
    at_ += 4;
    if (code < 0xD800 || code >= 0xE000) return true;
    const int32_t low = text_.substr(at_, 2) == "\\u" ? hex4(at_ + 2) : -1;
    if (code >= 0xDC00 || low < 0xDC00 || low >= 0xE000)
      return set(begin, "expected a pair of surrogates, found half of one");
    at_ += 6;
    return true;
  }

  bool digits() {
    const size_t begin = at_;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin;
  }

  bool number() {
    const size_t begin = at_;
    const auto bad = [&] {
      at_ = begin;
      return set(begin, "expected a number, found {}", found());
    };
    if (peek() == '-') ++at_;
    const size_t first = at_;
    if (!digits()) return bad();
    if (text_[first] == '0' && at_ > first + 1) return bad();
    bool integer = true;
    if (peek() == '.') {
      integer = false;
      ++at_;
      if (!digits()) return bad();
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return bad();
    }
    if (!at_end() && !is_delimiter(text_[at_])) return bad();
    const std::string token(text_.substr(begin, at_ - begin));
    if (!fits_double(token)) {
      at_ = begin;
      return set(begin, "expected a number within the range of a double, found {}",
                 quote_name(token));
    }
    if (integer && big_ != nullptr && !fits_64_bits(token)) big_->push_back(at_);
    return true;
  }

  static bool fits_double(const std::string& token) {
    double value = 0;
    const char* end = token.data() + token.size();
    const auto [stop, error] = std::from_chars(token.data(), end, value);
    if (error == std::errc::result_out_of_range) {
      // Both overflow and underflow; an underflow is a legal zero. The number overflows when its
      // decimal magnitude is positive.
      return decimal_magnitude(token) < 0;
    }
    return stop == end && std::isfinite(value);
  }

  // The sign of the power of ten of a number outside the range of a double: count digits before the
  // point (or zeros behind it) and add the exponent.
  static int decimal_magnitude(std::string_view token) {
    if (token.starts_with('-')) token.remove_prefix(1);
    const size_t e = token.find_first_of("eE");
    const std::string_view mantissa = token.substr(0, e);
    double exponent = 0;
    if (e != std::string_view::npos) {
      bool negative = false;
      for (const char c : token.substr(e + 1)) {
        if (c == '-') negative = true;
        if (c >= '0' && c <= '9') exponent = std::min(exponent * 10 + (c - '0'), 1e12);
      }
      if (negative) exponent = -exponent;
    }
    const size_t point = std::min(mantissa.find('.'), mantissa.size());
    const size_t significant = mantissa.find_first_not_of("0.");
    if (significant == std::string_view::npos) return -1;
    const double place = significant < point ? static_cast<double>(point - significant)
                                             : -static_cast<double>(significant - point - 1);
    return place + exponent > 0 ? 1 : -1;
  }

  static bool fits_64_bits(const std::string& token) {
    const char* begin = token.data();
    const char* end = begin + token.size();
    uint64_t u = 0;
    int64_t i = 0;
    if (token[0] == '-') return std::from_chars(begin, end, i).ec == std::errc();
    return std::from_chars(begin, end, u).ec == std::errc();
  }

  std::string_view text_;
  int max_depth_;
  std::vector<size_t>* big_;
  size_t at_ = 0;
  std::string open_;     // the brackets that are open
  bool opened_ = false;  // value() opened a non-empty object or array
  std::optional<JsonFault> fault_;
};

}  // namespace

std::optional<JsonFault> find_json_fault(std::string_view text, int max_depth,
                                         std::vector<size_t>* big_integer_ends) {
  return FaultFinder(text, max_depth, big_integer_ends).run();
}

LineColumn line_column(std::string_view text, size_t offset) {
  LineColumn place;
  for (size_t i = 0; i < std::min(offset, text.size()); ++i) {
    if (text[i] == '\n') {
      ++place.line;
      place.column = 1;
    } else if ((static_cast<uint8_t>(text[i]) & 0xC0U) != 0x80U) {
      ++place.column;
    }
  }
  return place;
}

}  // namespace sextant
