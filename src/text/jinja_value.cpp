// Values and Python's operators on them (jinja_value.h).
#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "io/ordered_json.h"
#include "text/jinja_unicode.h"

namespace sextant::jinja {

std::string_view error_kind_name(ErrorKind kind) {
  constexpr std::string_view kNames[] = {"raise",      "undefined", "type",  "syntax", "security",
                                         "arithmetic", "value",     "limit", "runtime"};
  return kNames[static_cast<int>(kind)];
}

void raise(ErrorKind kind, std::string message, int line) {
  throw TemplateError{kind, std::move(message), line};
}

Value Value::boolean(bool b) {
  Value v(Kind::kBool);
  v.scalar_.i = b ? 1 : 0;
  return v;
}
Value Value::integer(Int i) {
  Value v(Kind::kInt);
  v.scalar_.i = i;
  return v;
}
Value Value::real(double d) {
  Value v(Kind::kFloat);
  v.scalar_.d = d;
  return v;
}
Value Value::string(std::string s, bool markup) {
  return object(Kind::kString, std::make_shared<Str>(Str{std::move(s), markup}));
}
Value Value::list(std::vector<Value> items) {
  return object(Kind::kList, std::make_shared<List>(List{std::move(items), ""}));
}
Value Value::tuple(std::vector<Value> items) {
  return object(Kind::kTuple, std::make_shared<List>(List{std::move(items), ""}));
}
Value Value::undefined(std::string message, bool unsafe) {
  return object(Kind::kUndefined,
                std::make_shared<Undefined>(Undefined{std::move(message), unsafe}));
}
const std::string& Value::str() const { return get<Str>().bytes; }
bool Value::is_markup() const { return kind_ == Kind::kString && get<Str>().markup; }
const std::vector<Value>& Value::items() const { return get<List>().items; }
const Dict& Value::dict() const { return get<Dict>(); }

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.is_string() && k.str() == key) return &v;
  }
  return nullptr;
}
const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.str()));
  for (const auto& [k, v] : items) {
    if (equal(k, key)) return &v;
  }
  return nullptr;
}
void Dict::set(const Value& key, Value value) {
  switch (key.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kGenerator: raise(ErrorKind::kType, "unhashable type: '" + type_name(key) + "'");
    default: break;
  }
  for (auto& [k, v] : items) {
    if (equal(k, key)) {
      v = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

int64_t Range::size() const {
  if (step > 0) return start < stop ? static_cast<int64_t>((stop - start + step - 1) / step) : 0;
  return start > stop ? static_cast<int64_t>((start - stop - step - 1) / -step) : 0;
}

void Budget::bytes(int64_t n) {
  if (n > limits_.max_output_bytes) {
    raise(ErrorKind::kLimit, "template budget exceeded: a value of " + std::to_string(n) +
                                 " bytes, more than " + std::to_string(limits_.max_output_bytes));
  }
  step(1 + n / 32);
}

std::string type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView: return v.get<List>().view_name;
    case Kind::kRange: return "range";
    case Kind::kGenerator: return "generator";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCallable: return "function";
  }
  return "object";
}

void raise_undefined(const Value& v) {
  if (v.identity() == nullptr) raise(ErrorKind::kUndefined, "value is undefined");
  const auto& u = v.get<Undefined>();
  raise(u.unsafe ? ErrorKind::kSecurity : ErrorKind::kUndefined, u.message);
}
void require_defined(const Value& v) {
  if (v.is(Kind::kUndefined)) raise_undefined(v);
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return v.as_int() != 0;
    case Kind::kFloat: return v.as_double() != 0.0;
    case Kind::kString: return !v.str().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return !v.items().empty();
    case Kind::kDict: return !v.dict().items.empty();
    case Kind::kRange: return v.get<Range>().size() > 0;
    default: return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        equal);
    case Kind::kDict: {
      if (a.dict().items.size() != b.dict().items.size()) return false;
      return std::all_of(a.dict().items.begin(), a.dict().items.end(), [&](const auto& member) {
        const Value* other = b.dict().find(member.first);
        return other != nullptr && equal(member.second, *other);
      });
    }
    case Kind::kRange: {
      const auto& x = a.get<Range>();
      const auto& y = b.get<Range>();
      return x.size() == y.size() &&
             (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
    }
    default: return a.identity() == b.identity();
  }
}

bool less(const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  // UTF-8 keeps the order of code points.
  if (a.is_string() && b.is_string()) return a.str() < b.str();
  if (a.kind() == b.kind() && a.is_sequence_type()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  raise(ErrorKind::kType,
        "'<' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
}

std::vector<Value> iterate(const Value& v, Budget& budget) {
  switch (v.kind()) {
    case Kind::kUndefined:
      if (v.identity() != nullptr && v.get<Undefined>().unsafe) raise_undefined(v);
      return {};
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: budget.step(static_cast<int64_t>(v.items().size())); return v.items();
    case Kind::kDict: {
      std::vector<Value> keys;
      budget.step(static_cast<int64_t>(v.dict().items.size()));
      for (const auto& [key, value] : v.dict().items) keys.push_back(key);
      return keys;
    }
    case Kind::kString: {
      std::vector<Value> chars;
      budget.step(2 * count_code_points(v.str()));
      for (const char32_t c : decode_utf8(v.str()))
        chars.push_back(Value::string(encode_utf8({&c, 1})));
      return chars;
    }
    case Kind::kRange: {
      const auto& r = v.get<Range>();
      std::vector<Value> numbers;
      budget.step(r.size());
      for (int64_t i = 0; i < r.size(); ++i)
        numbers.push_back(Value::integer(r.start + i * r.step));
      return numbers;
    }
    case Kind::kGenerator: {
      auto& g = v.get<Generator>();
      std::vector<Value> rest(g.items.begin() + static_cast<int64_t>(g.next), g.items.end());
      budget.step(static_cast<int64_t>(rest.size()));
      g.next = g.items.size();
      return rest;
    }
    default: raise(ErrorKind::kType, "'" + type_name(v) + "' object is not iterable");
  }
}

int64_t length(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return count_code_points(v.str());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return static_cast<int64_t>(v.items().size());
    case Kind::kDict: return static_cast<int64_t>(v.dict().items.size());
    case Kind::kRange: return v.get<Range>().size();
    case Kind::kLoop: return static_cast<int64_t>(v.get<Loop>().items->size());
    default: raise(ErrorKind::kType, "object of type '" + type_name(v) + "' has no len()");
  }
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (!item.is_string()) {
      raise(ErrorKind::kType,
            "'in <string>' requires string as left operand, not " + type_name(item));
    }
    budget.step(1 + static_cast<int64_t>(container.str().size() / 64));
    return container.str().find(item.str()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) return container.dict().find(item) != nullptr;
  if (container.is_number() || container.is(Kind::kNone)) {
    raise(ErrorKind::kType, "argument of type '" + type_name(container) + "' is not iterable");
  }
  const std::vector<Value> items = iterate(container, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& x) { return equal(x, item); });
}

Value from_json(const Json& json, int depth) {
  if (depth > 200) raise(ErrorKind::kLimit, "variables nested deeper than 200");
  switch (json.type()) {
    case Json::value_t::null: return Value::none();
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string: return Value::string(json.get<std::string>());
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) {
        dict->items.emplace_back(Value::string(key), from_json(value, depth + 1));
      }
      return Value::object(Kind::kDict, std::move(dict));
    }
    default: return Value::none();
  }
}

const Value* Arguments::find(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}
Value Arguments::get(size_t position, std::string_view name, Value fallback) const {
  const Value* found = find(position, name);
  return found != nullptr ? *found : std::move(fallback);
}
bool Arguments::get_bool(size_t position, std::string_view name, bool fallback) const {
  const Value* found = find(position, name);
  return found != nullptr ? truthy(*found) : fallback;
}
void Arguments::at_most(size_t n, std::initializer_list<std::string_view> names,
                        std::string_view function) const {
  if (positional.size() > n) {
    raise(ErrorKind::kType, std::string(function) + "() takes at most " + std::to_string(n) +
                                " arguments (" + std::to_string(positional.size()) + " given)");
  }
  for (const auto& [key, value] : named) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      raise(ErrorKind::kType,
            std::string(function) + "() got an unexpected keyword argument '" + key + "'");
    }
  }
}

}  // namespace sextant::jinja
