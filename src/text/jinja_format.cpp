// Python's "%" formatting of strings, and the plain half of str.format ({} {0} {name}; attribute
// access and format specifications in a field are refused: that is where sandboxes leak).
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace sextant::jinja {
namespace {

struct Spec {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

// Widths and precisions come from the template: bounded, so that "%999999999d" is no memory bomb.
constexpr int kMaxWidth = 10000;

int read_number(const std::string& format, size_t& at) {
  int n = 0;
  while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
    n = n * 10 + (format[at++] - '0');
    if (n > kMaxWidth) raise(ErrorKind::kLimit, "width or precision of a format above 10000");
  }
  return n;
}

std::string pad(std::string text, const Spec& spec, bool numeric) {
  const int64_t n = count_code_points(text);
  if (n >= spec.width) return text;
  const auto fill = static_cast<size_t>(spec.width - n);
  if (spec.left) return text + std::string(fill, ' ');
  if (spec.zero && numeric) {
    const size_t sign =
        !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.substr(0, sign) + std::string(fill, '0') + text.substr(sign);
  }
  return std::string(fill, ' ') + text;
}

std::string in_base(Int value, unsigned base, bool upper_case) {
  const char* digits = upper_case ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  for (Int v = value < 0 ? -value : value; v != 0; v /= base)
    out.insert(out.begin(), digits[static_cast<int>(v % base)]);
  return out.empty() ? "0" : out;
}

std::string format_integer(const Value& v, const Spec& spec) {
  if (!v.is_number()) {
    require_defined(v);
    raise(ErrorKind::kType,
          fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(v)));
  }
  const bool hex_or_octal = spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
  if (hex_or_octal && v.is(Kind::kFloat)) {
    raise(ErrorKind::kType,
          fmt::format("%{} format: an integer is required, not float", spec.type));
  }
  if (v.is(Kind::kFloat) && !(std::fabs(v.as_double()) < 1e38)) {
    raise(ErrorKind::kValue, "cannot convert float to integer");
  }
  const Int value = v.is(Kind::kFloat) ? static_cast<Int>(v.as_double()) : v.as_int();
  std::string digits = spec.type == 'o'                       ? in_base(value, 8, false)
                       : spec.type == 'x' || spec.type == 'X' ? in_base(value, 16, spec.type == 'X')
                                                              : in_base(value, 10, false);
  if (spec.precision > static_cast<int>(digits.size())) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.alternate && spec.type != 'd' && spec.type != 'i') {
    digits.insert(0, spec.type == 'o' ? "0o" : spec.type == 'x' ? "0x" : "0X");
  }
  const std::string sign = value < 0 ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  return pad(sign + digits, spec, true);
}

std::string format_float(const Value& v, const Spec& spec) {
  if (!v.is_number()) {
    require_defined(v);
    raise(ErrorKind::kType, "must be real number, not " + type_name(v));
  }
  std::string flags = "%";
  if (spec.alternate) flags += '#';
  if (spec.plus) flags += '+';
  if (spec.space) flags += ' ';
  flags += ".*";
  flags += spec.type;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  const int n = std::snprintf(out.data(), out.size(), flags.c_str(), precision, v.as_double());
  out.resize(static_cast<size_t>(n));
  return pad(out, spec, std::isfinite(v.as_double()));
}

std::string format_one(const Value& v, const Spec& spec, Budget& budget) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = spec.type == 's' ? to_text(v, budget) : repr(v, budget);
      if (spec.precision >= 0) {
        const std::u32string points = decode_utf8(text);
        if (points.size() > static_cast<size_t>(spec.precision)) {
          text = encode_utf8({points.data(), static_cast<size_t>(spec.precision)});
        }
      }
      return pad(text, spec, false);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': return format_integer(v, spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return format_float(v, spec);
    case 'c': {
      std::string text;
      if (v.is_integral()) {
        if (v.as_int() < 0 || v.as_int() > 0x10FFFF)
          raise(ErrorKind::kValue, "%c arg not in range(0x110000)");
        append_utf8(text, static_cast<char32_t>(v.as_int()));
      } else if (v.is_string() && count_code_points(v.str()) == 1) {
        text = v.str();
      } else {
        raise(ErrorKind::kType, "%c requires int or char");
      }
      return pad(text, spec, false);
    }
    default:
      raise(ErrorKind::kValue, std::string("unsupported format character '") + spec.type + "'");
  }
}

Spec read_spec(const std::string& format, size_t& at) {
  Spec spec;
  for (; at < format.size(); ++at) {
    const char c = format[at];
    if (c == '-')
      spec.left = true;
    else if (c == '0')
      spec.zero = true;
    else if (c == '+')
      spec.plus = true;
    else if (c == ' ')
      spec.space = true;
    else if (c == '#')
      spec.alternate = true;
    else
      break;
  }
  spec.width = read_number(format, at);
  if (at < format.size() && format[at] == '.') {
    ++at;
    spec.precision = read_number(format, at);
  }
  if (at < format.size() && (format[at] == 'l' || format[at] == 'h' || format[at] == 'L')) ++at;
  if (at >= format.size()) raise(ErrorKind::kValue, "incomplete format");
  spec.type = format[at++];
  return spec;
}

}  // namespace

std::string percent_format(const std::string& format, const Value& arguments, Budget& budget) {
  std::string out;
  size_t next = 0;
  const bool is_tuple = arguments.is(Kind::kTuple);
  const auto take = [&]() -> Value {
    const size_t n = is_tuple ? arguments.items().size() : 1;
    if (next >= n) raise(ErrorKind::kType, "not enough arguments for format string");
    ++next;
    return is_tuple ? arguments.items()[next - 1] : arguments;
  };
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    ++at;
    if (at < format.size() && format[at] == '%') {
      out += '%';
      ++at;
      continue;
    }
    Value keyed;
    bool has_key = false;
    if (at < format.size() && format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == std::string::npos) raise(ErrorKind::kValue, "incomplete format key");
      if (!arguments.is(Kind::kDict)) raise(ErrorKind::kType, "format requires a mapping");
      const std::string key = format.substr(at + 1, close - at - 1);
      const Value* found = arguments.dict().find(std::string_view(key));
      if (found == nullptr) raise(ErrorKind::kRuntime, "key '" + key + "' of a format is missing");
      keyed = *found;
      has_key = true;
      at = close + 1;
    }
    const Spec spec = read_spec(format, at);
    out += format_one(has_key ? keyed : take(), spec, budget);
    budget.bytes(static_cast<int64_t>(out.size()) / 8);
  }
  const bool leftover_matters =
      is_tuple || !(arguments.is(Kind::kDict) || arguments.is(Kind::kList));
  const size_t n = is_tuple ? arguments.items().size() : 1;
  if (leftover_matters && next < n)
    raise(ErrorKind::kType, "not all arguments converted during string formatting");
  return out;
}

std::string brace_format(const std::string& format, const Arguments& arguments, Budget& budget) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') raise(ErrorKind::kValue, "Single '}' encountered in format string");
    if (c != '{') {
      out += c;
      ++at;
      continue;
    }
    const size_t close = format.find('}', at);
    if (close == std::string::npos) raise(ErrorKind::kValue, "expected '}' before end of string");
    const std::string field = format.substr(at + 1, close - at - 1);
    if (field.find_first_of(".[:!{") != std::string::npos) {
      raise(ErrorKind::kSecurity,
            "str.format fields may only be a position or a name, found '" + field + "'");
    }
    const bool numbered =
        !field.empty() && field.find_first_not_of("0123456789") == std::string::npos;
    const Value* value = nullptr;
    if (field.empty() || numbered) {
      const size_t position =
          numbered ? static_cast<size_t>(std::strtoul(field.c_str(), nullptr, 10)) : next++;
      if (position < arguments.positional.size()) value = &arguments.positional[position];
    } else {
      value = arguments.find(arguments.positional.size(), field);
    }
    if (value == nullptr) raise(ErrorKind::kRuntime, "no value for format field '" + field + "'");
    out += to_text(*value, budget);
    budget.bytes(static_cast<int64_t>(out.size()) / 8);
    at = close + 1;
  }
  return out;
}

}  // namespace sextant::jinja
