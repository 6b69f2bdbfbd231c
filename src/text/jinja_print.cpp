// How Python prints: str(), repr(), json.dumps and % formatting of values.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace sextant::jinja {
namespace {

std::string repr_string(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const bool has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : decode_utf8(text)) {
    if (c == U'\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      append_utf8(out, c);
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      char buffer[16];
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
      out += buffer;
    }
  }
  out += quote;
  return out;
}

std::string join_repr(const std::vector<Value>& items, Budget& budget) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    out += repr(items[i], budget);
    budget.bytes(static_cast<int64_t>(out.size()) / 16);
  }
  return out;
}

std::string repr_dict(const Dict& dict, Budget& budget) {
  std::string out = "{";
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out += ", ";
    out += repr(dict.items[i].first, budget) + ": " + repr(dict.items[i].second, budget);
    budget.bytes(static_cast<int64_t>(out.size()) / 16);
  }
  return out + "}";
}

std::string json_string(const std::string& text, bool ensure_ascii) {
  std::string out = "\"";
  char buffer[16];
  for (const char32_t c : decode_utf8(text)) {
    switch (c) {
      case U'"': out += "\\\""; continue;
      case U'\\': out += "\\\\"; continue;
      case U'\n': out += "\\n"; continue;
      case U'\r': out += "\\r"; continue;
      case U'\t': out += "\\t"; continue;
      case U'\b': out += "\\b"; continue;
      case U'\f': out += "\\f"; continue;
      default: break;
    }
    if (c >= 0x20 && (c < 0x7F || (!ensure_ascii && c != 0x7F))) {
      append_utf8(out, c);
    } else if (c == 0x7F && !ensure_ascii) {
      out += '\x7F';
    } else if (c == 0x7F) {
      out += "\x7F";
    } else if (c < 0x10000) {
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
      out += buffer;
    } else {
      const auto v = static_cast<unsigned>(c) - 0x10000U;
      std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xD800U + (v >> 10),
                    0xDC00U + (v & 0x3FFU));
      out += buffer;
    }
  }
  return out + "\"";
}

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return float_repr(d);
}

std::string json_key(const Value& key, bool ensure_ascii) {
  switch (key.kind()) {
    case Kind::kString: return json_string(key.str(), ensure_ascii);
    case Kind::kNone: return "\"null\"";
    case Kind::kBool: return key.as_bool() ? "\"true\"" : "\"false\"";
    case Kind::kInt: return "\"" + int_to_string(key.as_int()) + "\"";
    case Kind::kFloat: return "\"" + json_float(key.as_double()) + "\"";
    default:
      raise(ErrorKind::kType, "keys must be str, int, float, bool or None, not " + type_name(key));
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& v, int depth) {
    const DepthGuard guard(budget_);
    budget_.step();
    switch (v.kind()) {
      case Kind::kNone: out += "null"; return;
      case Kind::kBool: out += v.as_bool() ? "true" : "false"; return;
      case Kind::kInt: out += int_to_string(v.as_int()); return;
      case Kind::kFloat: out += json_float(v.as_double()); return;
      case Kind::kString:
        budget_.bytes(static_cast<int64_t>(v.str().size() + out.size() / 16));
        out += json_string(v.str(), style_.ensure_ascii);
        return;
      case Kind::kList:
      case Kind::kTuple: write_array(v.items(), depth); return;
      case Kind::kDict: write_object(v.dict(), depth); return;
      default:
        raise(ErrorKind::kType, "Object of type " + type_name(v) + " is not JSON serializable");
    }
  }

  std::string out;

 private:
  void line(int depth) {
    if (!style_.pretty) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += style_.indent;
  }
  void write_array(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(depth + 1);
      write(items[i], depth + 1);
    }
    line(depth);
    out += ']';
  }
  void write_object(const Dict& dict, int depth) {
    if (dict.items.empty()) {
      out += "{}";
      return;
    }
    auto members = dict.items;
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [](const auto& a, const auto& b) { return less(a.first, b.first); });
    }
    out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(depth + 1);
      out += json_key(members[i].first, style_.ensure_ascii) + style_.key_separator;
      write(members[i].second, depth + 1);
    }
    line(depth);
    out += '}';
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

std::string int_to_string(Int i) {
  if (i == 0) return "0";
  std::string digits;
  const bool negative = i < 0;
  while (i != 0) {
    const int digit = static_cast<int>(i % 10);
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
    i /= 10;
  }
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// repr(float): the shortest digits that read back, in positional form for exponents -4 ... 15.
std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string scientific(buffer, result.ptr);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
    std::string text(buffer, fixed.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
  }
  return scientific;  // to_chars writes at least two exponent digits, as Python does
}

std::string to_text(const Value& v, Budget& budget) {
  switch (v.kind()) {
    case Kind::kString: return v.str();
    case Kind::kUndefined:
      if (v.identity() != nullptr && v.get<Undefined>().unsafe) raise_undefined(v);
      return "";
    default: return repr(v, budget);
  }
}

std::string repr(const Value& v, Budget& budget) {
  const DepthGuard guard(budget);
  budget.step();
  switch (v.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "None";
    case Kind::kBool: return v.as_bool() ? "True" : "False";
    case Kind::kInt: return int_to_string(v.as_int());
    case Kind::kFloat: return float_repr(v.as_double());
    case Kind::kString:
      budget.bytes(static_cast<int64_t>(v.str().size()));
      return v.is_markup() ? "Markup(" + repr_string(v.str()) + ")" : repr_string(v.str());
    case Kind::kList: return "[" + join_repr(v.items(), budget) + "]";
    case Kind::kTuple:
      return "(" + join_repr(v.items(), budget) + (v.items().size() == 1 ? ",)" : ")");
    case Kind::kView: return type_name(v) + "([" + join_repr(v.items(), budget) + "])";
    case Kind::kDict: return repr_dict(v.dict(), budget);
    case Kind::kRange: {
      const auto& r = v.get<Range>();
      const std::string step = r.step == 1 ? "" : ", " + int_to_string(r.step);
      return "range(" + int_to_string(r.start) + ", " + int_to_string(r.stop) + step + ")";
    }
    case Kind::kNamespace:
      return "<Namespace " + repr_dict(v.get<Namespace>().members, budget) + ">";
    default: return "<" + type_name(v) + " object>";
  }
}

std::string to_json(const Value& v, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(v, 0);
  return std::move(writer.out);
}

}  // namespace sextant::jinja
