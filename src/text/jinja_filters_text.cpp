// The filters on text and numbers, with Python's meaning.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

namespace sextant::jinja {
namespace {

// --- text

Value do_indent(Interpreter& in, const Value& input, const Arguments& a) {
  const Value width = a.get(0, "width", Value::integer(4));
  if (width.is_integral() && width.as_int() > 10000)
    raise(ErrorKind::kLimit, "an indentation above 10000");
  const std::string indention =
      width.is_string()
          ? width.str()
          : std::string(
                width.is_integral() && width.as_int() > 0 ? static_cast<size_t>(width.as_int()) : 0,
                ' ');
  const bool first = a.get_bool(1, "first", false);
  const bool blank = a.get_bool(2, "blank", false);
  const std::string text = text_of(in, input) + "\n";
  std::string out;
  size_t begin = 0;
  for (size_t n = 0; begin < text.size(); ++n) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (n > 0) out += "\n";
    if (n == 0 ? first : (blank || !line.empty())) out += indention;
    out += line;
    in.budget().bytes(static_cast<int64_t>(line.size() + indention.size()));
    begin = end + 1;
  }
  in.budget().bytes(static_cast<int64_t>(out.size()));
  return Value::string(std::move(out));
}

Value do_replace(Interpreter& in, const Value& input, const Arguments& a) {
  Value method;
  Arguments arguments;
  const Value* from = a.find(0, "old");
  const Value* to = a.find(1, "new");
  if (from == nullptr || to == nullptr)
    raise(ErrorKind::kType, "replace needs what to replace and by what");
  arguments.positional = {Value::string(text_of(in, *from)), Value::string(text_of(in, *to))};
  const Value* count = a.find(2, "count");
  if (count != nullptr && !count->is(Kind::kNone)) arguments.positional.push_back(*count);
  find_method(Value::string(text_of(in, input)), "replace", &method);
  return in.call(method, arguments);
}

Value do_trim(Interpreter& in, const Value& input, const Arguments& a) {
  Value method;
  Arguments arguments;
  const Value* chars = a.find(0, "chars");
  if (chars != nullptr) arguments.positional.push_back(*chars);
  find_method(Value::string(text_of(in, input)), "strip", &method);
  return in.call(method, arguments);
}

// Jinja's title: words start after white space, hyphens and opening brackets.
Value do_title(Interpreter& in, const Value& input, const Arguments&) {
  std::string out;
  std::u32string word;
  const auto flush = [&] {
    if (!word.empty())
      out += upper(encode_utf8({word.data(), 1})) +
             lower(encode_utf8({word.data() + 1, word.size() - 1}));
    word.clear();
  };
  for (const char32_t c : decode_utf8(text_of(in, input))) {
    if (is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos) {
      flush();
      append_utf8(out, c);
    } else {
      word.push_back(c);
    }
  }
  flush();
  return Value::string(std::move(out));
}

Value do_wordcount(Interpreter& in, const Value& input, const Arguments&) {
  Int words = 0;
  bool inside = false;
  for (const char32_t c : decode_utf8(text_of(in, input))) {
    const bool word = is_alpha(c) || is_decimal(c) || c == U'_';
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

Value do_escape(Interpreter& in, const Value& input, const Arguments&) {
  if (input.is_markup()) return input;
  return add(Value::string("", true), Value::string(text_of(in, input)), in.budget());
}

Value do_truncate(Interpreter& in, const Value& input, const Arguments& a) {
  const std::u32string points = decode_utf8(text_of(in, input));
  const Value n = a.get(0, "length", Value::integer(255));
  const bool kill_words = a.get_bool(1, "killwords", false);
  const std::string end = text_of(in, a.get(2, "end", Value::string("...")));
  const Value leeway = a.get(3, "leeway", Value::integer(5));
  if (!n.is_integral() || !leeway.is_integral() || n.as_int() < count_code_points(end))
    raise(ErrorKind::kValue, "truncate: length shorter than its end");
  if (static_cast<Int>(points.size()) <= n.as_int() + leeway.as_int())
    return Value::string(encode_utf8(points));
  std::u32string kept = points.substr(0, static_cast<size_t>(n.as_int() - count_code_points(end)));
  if (!kill_words) {
    const size_t space = kept.rfind(U' ');
    if (space != std::u32string::npos) kept.resize(space);
  }
  return Value::string(encode_utf8(kept) + end);
}

Value do_tojson(Interpreter& in, const Value& input, const Arguments& a) {
  JsonStyle style;
  style.ensure_ascii = a.get_bool(0, "ensure_ascii", false);
  const Value indent = a.get(1, "indent", Value::none());
  if (!indent.is(Kind::kNone)) {
    style.pretty = true;
    style.item_separator = ",";
    if (indent.is_string()) {
      style.indent = indent.str();
    } else if (indent.is_integral()) {
      if (indent.as_int() > 1000) raise(ErrorKind::kLimit, "an indentation above 1000");
      style.indent =
          std::string(indent.as_int() > 0 ? static_cast<size_t>(indent.as_int()) : 0, ' ');
    } else {
      raise(ErrorKind::kType, "indent must be an integer or a string");
    }
  }
  const Value separators = a.get(2, "separators", Value::none());
  if (separators.is_sequence_type() && separators.items().size() == 2) {
    style.item_separator = text_of(in, separators.items()[0]);
    style.key_separator = text_of(in, separators.items()[1]);
  }
  style.sort_keys = a.get_bool(3, "sort_keys", false);
  std::string out = to_json(input, style, in.budget());
  in.budget().bytes(static_cast<int64_t>(out.size()));
  return Value::string(std::move(out));
}

Value do_urlencode(Interpreter& in, const Value& input, const Arguments&) {
  std::string out;
  for (const char c : text_of(in, input)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x80 && std::isalnum(byte) != 0) ||
        std::string_view("_.-~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      static constexpr char kHex[] = "0123456789ABCDEF";
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return Value::string(std::move(out));
}

// --- numbers

std::string_view trimmed(const std::string& text) {
  size_t b = 0;
  size_t e = text.size();
  while (b < e && std::isspace(static_cast<unsigned char>(text[b])) != 0) ++b;
  while (e > b && std::isspace(static_cast<unsigned char>(text[e - 1])) != 0) --e;
  return std::string_view(text).substr(b, e - b);
}
bool parse_double(const std::string& text, double* out) {
  const std::string number(trimmed(text));
  if (number.empty() || number.find_first_of("xXpP") != std::string::npos) return false;
  char* end = nullptr;
  *out = std::strtod(number.c_str(), &end);
  return end == number.c_str() + number.size();
}
bool parse_int(const std::string& text, int64_t base, Int* out) {
  std::string digits(trimmed(text));
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
  for (const auto& [prefix, prefix_base] :
       {std::pair{"0x", 16}, std::pair{"0o", 8}, std::pair{"0b", 2}}) {
    if (base == prefix_base && lower(digits).rfind(prefix, 0) == 0) digits.erase(0, 2);
  }
  if (digits.empty()) return false;
  Int value = 0;
  for (const char c : digits) {
    if (c == '_') continue;
    const int d = c >= '0' && c <= '9'   ? c - '0'
                  : c >= 'a' && c <= 'z' ? c - 'a' + 10
                  : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                         : 99;
    if (d >= base) return false;
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{d}, &value))
      raise(ErrorKind::kLimit, "integer beyond 128 bits");
  }
  *out = negative ? -value : value;
  return true;
}

Value do_int(Interpreter&, const Value& input, const Arguments& a) {
  const Value fallback = a.get(0, "default", Value::integer(0));
  const Value base = a.get(1, "base", Value::integer(10));
  if (input.is_integral()) return Value::integer(input.as_int());
  if (input.is(Kind::kFloat))
    return std::fabs(input.as_double()) < 1e38 ? Value::integer(static_cast<Int>(input.as_double()))
                                               : fallback;
  if (input.is_string()) {
    Int value = 0;
    double d = 0;
    if (base.is_integral() && base.as_int() >= 2 && base.as_int() <= 36 &&
        parse_int(input.str(), static_cast<int64_t>(base.as_int()), &value))
      return Value::integer(value);
    if (parse_double(input.str(), &d) && std::fabs(d) < 1e38)
      return Value::integer(static_cast<Int>(d));
  }
  if (input.is(Kind::kUndefined)) raise_undefined(input);
  return fallback;
}
Value do_float(Interpreter&, const Value& input, const Arguments& a) {
  double d = 0;
  if (input.is_number()) return Value::real(input.as_double());
  if (input.is_string() && parse_double(input.str(), &d)) return Value::real(d);
  if (input.is(Kind::kUndefined)) raise_undefined(input);
  return a.get(0, "default", Value::real(0.0));
}
Value do_abs(Interpreter&, const Value& input, const Arguments&) {
  require_defined(input);
  if (!input.is_number())
    raise(ErrorKind::kType, "bad operand type for abs(): '" + type_name(input) + "'");
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_double()));
  return Value::integer(input.as_int() < 0 ? -input.as_int() : input.as_int());
}
Value do_round(Interpreter& in, const Value& input, const Arguments& a) {
  require_defined(input);
  if (!input.is_number())
    raise(ErrorKind::kType, "round expects a number, not " + type_name(input));
  const Value precision = a.get(0, "precision", Value::integer(0));
  const std::string method = text_of(in, a.get(1, "method", Value::string("common")));
  if (!precision.is_integral() || precision.as_int() > 300 || precision.as_int() < -300)
    raise(ErrorKind::kType, "round: a precision of -300 to 300");
  const int digits = static_cast<int>(precision.as_int());
  const double unit = std::pow(10.0, digits);
  if (method == "ceil") return Value::real(std::ceil(input.as_double() * unit) / unit);
  if (method == "floor") return Value::real(std::floor(input.as_double() * unit) / unit);
  if (method != "common") raise(ErrorKind::kRuntime, "method must be common, ceil or floor");
  if (digits < 0) return Value::real(std::nearbyint(input.as_double() * unit) / unit);
  // Correctly rounded in decimal, half to even, as Python's round: through the exact decimal
  // expansion.
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, input.as_double());
  return Value::real(std::strtod(buffer, nullptr));
}

constexpr FilterRow kTextFilters[] = {
    {"abs", do_abs},
    {"capitalize", SX_FILTER(Value::string(capitalize(text_of(in, v))))},
    {"center",
     [](Interpreter& in, const Value& v, const Arguments& a) {
       Value method;
       find_method(Value::string(text_of(in, v)), "center", &method);
       Arguments width;
       width.positional = {a.get(0, "width", Value::integer(80))};
       return in.call(method, width);
     }},
    {"e", do_escape},
    {"escape", do_escape},
    {"float", do_float},
    {"format",
     [](Interpreter& in, const Value& v, const Arguments& a) {
       if (a.named.empty())
         return Value::string(
             percent_format(text_of(in, v), Value::tuple(a.positional), in.budget()));
       auto dict = std::make_shared<Dict>();
       for (const auto& [key, value] : a.named) dict->set(Value::string(key), value);
       return Value::string(
           percent_format(text_of(in, v), Value::object(Kind::kDict, dict), in.budget()));
     }},
    {"indent", do_indent},
    {"int", do_int},
    {"lower", SX_FILTER(Value::string(lower(text_of(in, v))))},
    {"replace", do_replace},
    {"round", do_round},
    {"safe", SX_FILTER(Value::string(text_of(in, v), true))},
    {"string", SX_FILTER(v.is_string() ? v : Value::string(text_of(in, v)))},
    {"title", do_title},
    {"tojson", do_tojson},
    {"trim", do_trim},
    {"truncate", do_truncate},
    {"upper", SX_FILTER(Value::string(upper(text_of(in, v))))},
    {"urlencode", do_urlencode},
    {"wordcount", do_wordcount},
};

}  // namespace

std::span<const FilterRow> text_filters() { return kTextFilters; }

}  // namespace sextant::jinja
