// Splitting a template into data and tags. White space around tags follows Jinja 3.1 with
// trim_blocks and lstrip_blocks: the first line end after a block or comment goes; white space
// before a block or comment that stands first on its line goes; '-' strips all,
// '+' keeps all. The last line end of the source is dropped.
#include "text/jinja_ast.h"
#include "text/jinja_unicode.h"

namespace sextant::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

// Text without the Unicode white space at its end.
std::string_view strip_end(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    const std::u32string last = decode_utf8(text.substr(begin));
    if (last.size() != 1 || !is_space(last[0])) break;
    text = text.substr(0, begin);
  }
  return text;
}
size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t end = at + 1;
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    const std::u32string c = decode_utf8(text.substr(at, end - at));
    if (c.size() != 1 || !is_space(c[0])) break;
    at = end;
  }
  return at;
}

std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_data();
    push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    raise(ErrorKind::kSyntax, message, line_);
  }
  void push(TokenType type, std::string text) {
    tokens_.push_back(Token{type, std::move(text), {}, line_});
  }
  void advance(size_t to) {
    for (; at_ < to; ++at_) line_ += source_[at_] == '\n' ? 1 : 0;
  }
  bool at(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  // Data up to the next tag, trimmed by the tag's sign; then the tag.
  void next_data() {
    size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) {
        open = source_.size();
        break;
      }
      const char kind = source_[open + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
    }
    std::string_view data = std::string_view(source_).substr(at_, open - at_);
    if (open == source_.size()) {
      if (!data.empty()) push(TokenType::kData, std::string(data));
      at_ = open;
      return;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    data = strip_before(data, kind, sign);
    if (!data.empty()) push(TokenType::kData, std::string(data));
    advance(open + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') {
      comment();
    } else if (kind == '%' && raw_begin()) {
      raw();
    } else {
      tag(kind == '%');
    }
  }

  std::string_view strip_before(std::string_view data, char kind, char sign) const {
    if (sign == '-') return strip_end(data);
    if (sign == '+' || kind == '{') return data;
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return data;
    return skip_space(data, line_begin) == data.size() ? data.substr(0, line_begin) : data;
  }

  // After the delimiters of an end: "-" strips all that follows, "+" nothing, otherwise one line
  // end of blocks and comments goes.
  void after_end(char sign, bool trims_line) {
    const size_t before = at_;
    if (sign == '-') {
      advance(skip_space(source_, at_));
    } else if (sign != '+' && trims_line && at_ < source_.size() && source_[at_] == '\n') {
      advance(at_ + 1);
    }
    line_starting_ = at_ > before && source_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2);
    after_end(sign, true);
  }

  // {% raw %}: the whole begin tag, or nothing.
  bool raw_begin() {
    size_t p = skip_space(source_, at_);
    if (source_.compare(p, 3, "raw") != 0) return false;
    p = skip_space(source_, p + 3);
    const bool minus = p < source_.size() && source_[p] == '-';
    if (source_.compare(p + (minus ? 1 : 0), 2, "%}") != 0) return false;
    advance(p + (minus ? 3 : 2));
    if (minus) advance(skip_space(source_, at_));
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    return true;
  }

  void raw() {
    for (size_t open = source_.find("{%", at_); open != std::string::npos;
         open = source_.find("{%", open + 1)) {
      size_t p = open + 2;
      const char begin_sign = p < source_.size() ? source_[p] : ' ';
      if (begin_sign == '-' || begin_sign == '+') ++p;
      p = skip_space(source_, p);
      if (source_.compare(p, 6, "endraw") != 0) continue;
      p = skip_space(source_, p + 6);
      const char end_sign = p < source_.size() ? source_[p] : ' ';
      if (end_sign == '-' || end_sign == '+') ++p;
      if (source_.compare(p, 2, "%}") != 0) continue;
      const std::string_view data =
          strip_before(std::string_view(source_).substr(at_, open - at_), '%', begin_sign);
      if (!data.empty()) push(TokenType::kData, std::string(data));
      advance(p + 2);
      after_end(end_sign, true);
      return;
    }
    fail("Missing end of raw directive");
  }

  void tag(bool is_block) {
    push(is_block ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    const std::string_view close = is_block ? "%}" : "}}";
    std::string braces;
    for (;;) {
      advance(skip_space(source_, at_));
      if (at_ >= source_.size()) fail("unexpected end of template inside a tag");
      if (braces.empty()) {
        const char sign = source_[at_];
        const bool signed_end =
            (sign == '-' || (sign == '+' && is_block)) && source_.compare(at_ + 1, 2, close) == 0;
        if (signed_end || at(close)) {
          push(is_block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
          advance(at_ + (signed_end ? 3 : 2));
          after_end(signed_end ? sign : ' ', is_block);
          return;
        }
      }
      token(braces);
    }
  }

  void token(std::string& braces) {
    const char c = source_[at_];
    if (is_digit(c)) {
      number();
    } else if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_char(source_[end])) ++end;
      push(TokenType::kName, source_.substr(at_, end - at_));
      advance(end);
    } else if (c == '\'' || c == '"') {
      string(c);
    } else {
      op(braces);
    }
  }

  void op(std::string& braces) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (at(two)) {
        push(TokenType::kOperator, std::string(two));
        advance(at_ + 2);
        return;
      }
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      fail(std::string("unexpected char '") + c + "'");
    }
    if (c == '(' || c == '[' || c == '{') {
      braces += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (braces.empty()) fail(std::string("unexpected '") + c + "'");
      if (braces.back() != c)
        fail(std::string("unexpected '") + c + "', expected '" + braces.back() + "'");
      braces.pop_back();
    }
    push(TokenType::kOperator, std::string(1, c));
    advance(at_ + 1);
  }

  size_t digits(size_t p) const {
    while (p < source_.size() &&
           (is_digit(source_[p]) ||
            (source_[p] == '_' && p + 1 < source_.size() && is_digit(source_[p + 1]))))
      ++p;
    return p;
  }

  void number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    size_t end = digits(at_);
    bool is_float = false;
    if (!after_dot) {
      size_t p = end;
      if (p + 1 < source_.size() && source_[p] == '.' && is_digit(source_[p + 1]))
        p = digits(p + 1);
      size_t e = p;
      if (e < source_.size() && (source_[e] == 'e' || source_[e] == 'E')) {
        ++e;
        if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
        if (e < source_.size() && is_digit(source_[e])) p = digits(e);
      }
      is_float = p != end;
      end = p;
    }
    std::string text;
    for (size_t i = at_; i < end; ++i) {
      if (source_[i] != '_') text += source_[i];
    }
    Token token{is_float ? TokenType::kFloat : TokenType::kInteger, text, {}, line_};
    token.value = is_float ? Value::real(std::strtod(text.c_str(), nullptr))
                           : Value::integer(parse_integer(text));
    tokens_.push_back(std::move(token));
    advance(end);
  }

  Int parse_integer(const std::string& text) const {
    Int value = 0;
    for (const char c : text) {
      if (__builtin_mul_overflow(value, Int{10}, &value) ||
          __builtin_add_overflow(value, Int{c - '0'}, &value)) {
        fail("integer beyond 128 bits");
      }
    }
    return value;
  }

  void string(char quote) {
    size_t p = at_ + 1;
    std::string out;
    for (;; ++p) {
      if (p >= source_.size()) fail("unexpected end of template inside a string");
      if (source_[p] == quote) break;
      if (source_[p] == '\\') {
        if (p + 1 >= source_.size()) fail("unexpected end of template inside a string");
        p = escape(p + 1, out);
      } else {
        out += source_[p];
      }
    }
    push(TokenType::kString, std::move(out));
    advance(p + 1);
  }

  // One escape whose letter is at p; the position of its last character is returned.
  size_t escape(size_t p, std::string& out) const {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[p];
    const size_t simple = kFrom.find(c);
    if (simple != std::string_view::npos) {
      out += kTo[simple];
      return p;
    }
    if (c == '\n') return p;
    if (c == 'x') return hex_escape(p, 2, out);
    if (c == 'u') return hex_escape(p, 4, out);
    if (c == 'U') return hex_escape(p, 8, out);
    if (c >= '0' && c <= '7') {
      unsigned value = 0;
      size_t q = p;
      for (; q < p + 3 && q < source_.size() && source_[q] >= '0' && source_[q] <= '7'; ++q)
        value = value * 8 + static_cast<unsigned>(source_[q] - '0');
      append_utf8(out, value);
      return q - 1;
    }
    out += '\\';
    out += c;
    return p;
  }

  size_t hex_escape(size_t p, size_t n, std::string& out) const {
    const auto unit = [&](size_t begin) {
      const std::string digits_text = source_.substr(begin, n);
      if (digits_text.size() != n ||
          digits_text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
        fail("truncated escape in a string");
      return static_cast<char32_t>(std::strtoul(digits_text.c_str(), nullptr, 16));
    };
    const char32_t c = unit(p + 1);
    // Two \u escapes that form a surrogate pair are one character.
    if (n == 4 && c >= 0xD800 && c < 0xDC00 && source_.compare(p + 5, 2, "\\u") == 0) {
      const char32_t low = unit(p + 7);
      if (low >= 0xDC00 && low < 0xE000) {
        append_utf8(out, 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00));
        return p + 10;
      }
    }
    if (c > 0x10FFFF) fail("illegal Unicode character in a string");
    append_utf8(out, c >= 0xD800 && c < 0xE000 ? U'\uFFFD' : c);
    return p + n;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace sextant::jinja
