// Methods of str, list, tuple and dict. What would change a
// list or dict is there but unsafe, as in the immutable sandbox of transformers: using it is a
// security error.
#include <algorithm>

#include "text/jinja_methods.h"
#include "text/jinja_unicode.h"

namespace sextant::jinja {
namespace {

std::vector<Value> strings(std::vector<std::string> parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (std::string& part : parts) out.push_back(Value::string(std::move(part)));
  return out;
}

// --- str

std::u32string strip_points(const std::u32string& points, const std::u32string* chars, bool left,
                            bool right) {
  const auto drop = [&](char32_t c) {
    return chars != nullptr ? chars->find(c) != std::u32string::npos : is_space(c);
  };
  size_t begin = 0;
  size_t end = points.size();
  while (left && begin < end && drop(points[begin])) ++begin;
  while (right && end > begin && drop(points[end - 1])) --end;
  return points.substr(begin, end - begin);
}
Value strip(const Value& self, const Arguments& a, bool left, bool right) {
  const Value* chars = a.find(0, "chars");
  const std::u32string points = decode_utf8(self.str());
  if (chars == nullptr || chars->is(Kind::kNone))
    return Value::string(encode_utf8(strip_points(points, nullptr, left, right)));
  const std::u32string set = decode_utf8(want_string(a, 0, "chars", "strip"));
  return Value::string(encode_utf8(strip_points(points, &set, left, right)));
}

std::vector<std::string> split_space(const std::string& text, int64_t max, bool from_right) {
  const std::u32string points = decode_utf8(text);
  std::vector<std::string> parts;
  const auto piece = [&](size_t b, size_t e) {
    parts.push_back(encode_utf8({points.data() + b, e - b}));
  };
  if (!from_right) {
    for (size_t i = 0; i < points.size();) {
      while (i < points.size() && is_space(points[i])) ++i;
      if (i == points.size()) break;
      if (max >= 0 && static_cast<int64_t>(parts.size()) == max) {
        piece(i, i + strip_points(points.substr(i), nullptr, false, true).size());
        break;
      }
      const size_t begin = i;
      while (i < points.size() && !is_space(points[i])) ++i;
      piece(begin, i);
    }
    return parts;
  }
  for (size_t i = points.size(); i > 0;) {
    while (i > 0 && is_space(points[i - 1])) --i;
    if (i == 0) break;
    if (max >= 0 && static_cast<int64_t>(parts.size()) == max) {
      size_t b = 0;
      while (b < i && is_space(points[b])) ++b;
      piece(b, i);
      break;
    }
    const size_t end = i;
    while (i > 0 && !is_space(points[i - 1])) --i;
    piece(i, end);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_on(const std::string& text, const std::string& separator,
                                  int64_t max, bool from_right) {
  if (separator.empty()) raise(ErrorKind::kValue, "empty separator");
  std::vector<std::string> parts;
  if (!from_right) {
    size_t begin = 0;
    for (size_t hit = text.find(separator);
         hit != std::string::npos && (max < 0 || static_cast<int64_t>(parts.size()) < max);
         hit = text.find(separator, begin)) {
      parts.push_back(text.substr(begin, hit - begin));
      begin = hit + separator.size();
    }
    parts.push_back(text.substr(begin));
    return parts;
  }
  size_t end = text.size();
  while (end >= separator.size() && (max < 0 || static_cast<int64_t>(parts.size()) < max)) {
    const size_t hit = text.rfind(separator, end - separator.size());
    if (hit == std::string::npos) break;
    parts.push_back(text.substr(hit + separator.size(), end - hit - separator.size()));
    end = hit;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(Interpreter& interpreter, const Value& self, const Arguments& a, bool from_right) {
  a.at_most(2, {"sep", "maxsplit"}, "split");
  interpreter.budget().step(static_cast<int64_t>(self.str().size()));
  const Value* separator = a.find(0, "sep");
  const int64_t max = want_count(a, 1, "maxsplit", -1);
  if (separator == nullptr || separator->is(Kind::kNone))
    return Value::list(strings(split_space(self.str(), max, from_right)));
  return Value::list(
      strings(split_on(self.str(), want_string(a, 0, "sep", "split"), max, from_right)));
}

bool has_affix(const std::string& text, const std::string& affix, bool at_end) {
  if (affix.size() > text.size()) return false;
  return text.compare(at_end ? text.size() - affix.size() : 0, affix.size(), affix) == 0;
}
Value affix(const Value& self, const Arguments& a, bool at_end) {
  if (a.positional.size() != 1)
    raise(ErrorKind::kType, "startswith and endswith take one argument here");
  const Value& v = a.positional[0];
  if (v.is(Kind::kTuple)) {
    return Value::boolean(std::any_of(v.items().begin(), v.items().end(), [&](const Value& x) {
      return x.is_string() && has_affix(self.str(), x.str(), at_end);
    }));
  }
  return Value::boolean(has_affix(
      self.str(), want_string(a, 0, "prefix", at_end ? "endswith" : "startswith"), at_end));
}

std::string replace_text(const std::string& text, const std::string& from, const std::string& to,
                         int64_t max, Budget& budget) {
  std::string out;
  int64_t n = 0;
  if (from.empty()) {  // between all code points, as Python does
    for (const char32_t c : decode_utf8(text)) {
      if (max < 0 || n < max) {
        out += to;
        ++n;
      }
      append_utf8(out, c);
      budget.bytes(static_cast<int64_t>(out.size() / 64));
    }
    if (max < 0 || n < max) out += to;
    budget.bytes(static_cast<int64_t>(out.size()));
    return out;
  }
  size_t begin = 0;
  for (size_t hit = text.find(from); hit != std::string::npos && (max < 0 || n < max);
       hit = text.find(from, begin), ++n) {
    out.append(text, begin, hit - begin);
    out += to;
    begin = hit + from.size();
    if (static_cast<int64_t>(out.size()) > budget.limits().max_output_bytes)
      budget.bytes(static_cast<int64_t>(out.size()));
  }
  out.append(text, begin);
  budget.bytes(static_cast<int64_t>(out.size()));
  return out;
}

Value find_in(const Value& self, const Arguments& a, bool from_right, bool must) {
  const std::string& what = want_string(a, 0, "sub", "find");
  const size_t hit = from_right ? self.str().rfind(what) : self.str().find(what);
  if (hit == std::string::npos) {
    if (must) raise(ErrorKind::kValue, "substring not found");
    return Value::integer(-1);
  }
  return Value::integer(count_code_points(std::string_view(self.str()).substr(0, hit)));
}

template <class F>
Value all_points(const Value& self, F&& f) {
  const std::u32string points = decode_utf8(self.str());
  return Value::boolean(!points.empty() && std::all_of(points.begin(), points.end(), f));
}
Value join(Interpreter& interpreter, const Value& self, const Arguments& a) {
  if (a.positional.size() != 1) raise(ErrorKind::kType, "join() takes exactly one argument");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(a.positional[0], interpreter.budget())) {
    if (!item.is_string())
      raise(ErrorKind::kType,
            "sequence item: expected str instance, " + type_name(item) + " found");
    if (!first) out += self.str();
    first = false;
    out += item.str();
    interpreter.budget().bytes(static_cast<int64_t>(out.size()));
  }
  return Value::string(std::move(out));
}

Value splitlines(Interpreter& interpreter, const Value& self, const Arguments& a) {
  const bool keep = a.get_bool(0, "keepends", false);
  std::vector<std::string> lines;
  const std::u32string p = decode_utf8(self.str());
  interpreter.budget().step(static_cast<int64_t>(p.size()));
  size_t begin = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const char32_t c = p[i];
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    size_t next = i + 1;
    if (c == U'\r' && next < p.size() && p[next] == U'\n') ++next;
    lines.push_back(encode_utf8({p.data() + begin, (keep ? next : i) - begin}));
    begin = next;
    i = next - 1;
  }
  if (begin < p.size()) lines.push_back(encode_utf8({p.data() + begin, p.size() - begin}));
  return Value::list(strings(std::move(lines)));
}

Value partition(const Value& self, const Arguments& a, bool from_right) {
  const std::string& sep = want_string(a, 0, "sep", "partition");
  if (sep.empty()) raise(ErrorKind::kValue, "empty separator");
  const std::string& s = self.str();
  const size_t hit = from_right ? s.rfind(sep) : s.find(sep);
  if (hit == std::string::npos)
    return Value::tuple(strings(from_right ? std::vector<std::string>{"", "", s}
                                           : std::vector<std::string>{s, "", ""}));
  return Value::tuple(strings({s.substr(0, hit), sep, s.substr(hit + sep.size())}));
}

Value remove_affix(const Value& self, const Arguments& a, bool at_end) {
  const std::string& text = want_string(a, 0, "prefix", "removeprefix");
  if (!has_affix(self.str(), text, at_end)) return self;
  return Value::string(at_end ? self.str().substr(0, self.str().size() - text.size())
                              : self.str().substr(text.size()));
}

Value pad(Interpreter& interpreter, const Value& self, const Arguments& a, int side) {
  const int64_t width = want_count(a, 0, "width", 0);
  const std::string fill =
      a.find(1, "fillchar") != nullptr ? want_string(a, 1, "fillchar", "ljust") : " ";
  const int64_t n = count_code_points(self.str());
  if (width <= n) return self;
  interpreter.budget().bytes((width - n) * static_cast<int64_t>(fill.size()));
  const int64_t total = width - n;
  const int64_t left = side < 0 ? 0 : side > 0 ? total : total / 2 + (total & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.str();
  for (int64_t i = left; i < total; ++i) out += fill;
  return Value::string(std::move(out));
}

constexpr MethodRow kStringMethods[] = {
    {"split", SX_METHOD(return split(in, self, a, false);)},
    {"rsplit", SX_METHOD(return split(in, self, a, true);)},
    {"strip", SX_METHOD(return strip(self, a, true, true);)},
    {"lstrip", SX_METHOD(return strip(self, a, true, false);)},
    {"rstrip", SX_METHOD(return strip(self, a, false, true);)},
    {"startswith", SX_METHOD(return affix(self, a, false);)},
    {"endswith", SX_METHOD(return affix(self, a, true);)},
    {"upper", SX_METHOD(return Value::string(upper(self.str()));)},
    {"lower", SX_METHOD(return Value::string(lower(self.str()));)},
    {"casefold", SX_METHOD(return Value::string(lower(self.str()));)},
    {"title", SX_METHOD(return Value::string(title(self.str()));)},
    {"capitalize", SX_METHOD(return Value::string(capitalize(self.str()));)},
    {"replace",
     SX_METHOD(return Value::string(replace_text(self.str(), want_string(a, 0, "old", "replace"),
                                                 want_string(a, 1, "new", "replace"),
                                                 want_count(a, 2, "count", -1), in.budget()));)},
    {"find", SX_METHOD(return find_in(self, a, false, false);)},
    {"rfind", SX_METHOD(return find_in(self, a, true, false);)},
    {"index", SX_METHOD(return find_in(self, a, false, true);)},
    {"count", SX_METHOD(const std::string& what = want_string(a, 0, "sub", "count");
                        if (what.empty()) return Value::integer(count_code_points(self.str()) + 1);
                        return Value::integer(
                            static_cast<Int>(split_on(self.str(), what, -1, false).size()) - 1);)},
    {"join", SX_METHOD(return join(in, self, a);)},
    {"splitlines", SX_METHOD(return splitlines(in, self, a);)},
    {"partition", SX_METHOD(return partition(self, a, false);)},
    {"rpartition", SX_METHOD(return partition(self, a, true);)},
    {"removeprefix", SX_METHOD(return remove_affix(self, a, false);)},
    {"removesuffix", SX_METHOD(return remove_affix(self, a, true);)},
    {"isspace", SX_METHOD(return all_points(self, is_space);)},
    {"isalpha", SX_METHOD(return all_points(self, is_alpha);)},
    {"isdigit", SX_METHOD(return all_points(self, is_decimal);)},
    {"isdecimal", SX_METHOD(return all_points(self, is_decimal);)},
    {"isnumeric", SX_METHOD(return all_points(self, is_decimal);)},
    {"isalnum",
     SX_METHOD(return all_points(self, [](char32_t c) { return is_alpha(c) || is_decimal(c); });)},
    {"isupper", SX_METHOD(return Value::boolean(is_upper(self.str()));)},
    {"islower", SX_METHOD(return Value::boolean(is_lower(self.str()));)},
    {"ljust", SX_METHOD(return pad(in, self, a, -1);)},
    {"rjust", SX_METHOD(return pad(in, self, a, 1);)},
    {"center", SX_METHOD(return pad(in, self, a, 0);)},
    {"format", SX_METHOD(return Value::string(brace_format(self.str(), a, in.budget()));)},
    {"encode", SX_METHOD(raise(ErrorKind::kType, "bytes are not supported in chat templates");)},
};

// --- dict, list, tuple

Value view(const Value& self, const char* name, int what) {
  auto list = std::make_shared<List>();
  list->view_name = name;
  for (const auto& [key, value] : self.dict().items)
    list->items.push_back(what == 0 ? key : what == 1 ? value : Value::tuple({key, value}));
  return Value::object(Kind::kView, std::move(list));
}
constexpr MethodRow kDictMethods[] = {
    {"items", SX_METHOD(in.budget().step(static_cast<int64_t>(self.dict().items.size()));
                        return view(self, "dict_items", 2);)},
    {"keys", SX_METHOD(return view(self, "dict_keys", 0);)},
    {"values", SX_METHOD(return view(self, "dict_values", 1);)},
    {"get", SX_METHOD(if (a.positional.empty())
                          raise(ErrorKind::kType, "get expected at least 1 argument, got 0");
                      const Value* found = self.dict().find(a.positional[0]);
                      return found != nullptr ? *found : a.get(1, "default", Value::none());)},
    {"copy", SX_METHOD(return self;)},
};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

Value index_of(Interpreter& interpreter, const Value& self, const Arguments& a) {
  if (a.positional.empty()) raise(ErrorKind::kType, "index expected at least 1 argument, got 0");
  const auto& items = self.items();
  interpreter.budget().step(static_cast<int64_t>(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], a.positional[0])) return Value::integer(static_cast<Int>(i));
  }
  raise(ErrorKind::kValue, repr(a.positional[0], interpreter.budget()) + " is not in list");
}
constexpr MethodRow kListMethods[] = {
    {"index", SX_METHOD(return index_of(in, self, a);)},
    {"count", SX_METHOD(if (a.positional.empty())
                            raise(ErrorKind::kType, "count() takes exactly one argument (0 given)");
                        return Value::integer(std::count_if(
                            self.items().begin(), self.items().end(),
                            [&](const Value& v) { return equal(v, a.positional[0]); }));)},
    {"copy", SX_METHOD(return self;)},
};
constexpr std::string_view kListMutators[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};

template <size_t N>
bool unsafe_from(const std::string_view (&names)[N], const Value& object, std::string_view name,
                 Value* method) {
  if (std::find(std::begin(names), std::end(names), name) == std::end(names)) return false;
  *method = Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                                 type_name(object) + "' object is unsafe.",
                             true);
  return true;
}

}  // namespace

bool find_method(const Value& object, std::string_view name, Value* method) {
  switch (object.kind()) {
    case Kind::kString: return bind_from(kStringMethods, object, name, method);
    case Kind::kDict:
      return bind_from(kDictMethods, object, name, method) ||
             unsafe_from(kDictMutators, object, name, method);
    case Kind::kList:
      return bind_from(kListMethods, object, name, method) ||
             unsafe_from(kListMutators, object, name, method);
    case Kind::kTuple: return name != "copy" && bind_from(kListMethods, object, name, method);
    case Kind::kLoop: return find_loop_method(object, name, method);
    default: return false;
  }
}

}  // namespace sextant::jinja
