// The filters on sequences and mappings, with Python's meaning. Names that Jinja has and
// this list lacks are refused when a template is parsed, like unknown ones.
#include <algorithm>
#include <cmath>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

namespace sextant::jinja {
namespace {

Value generator(std::vector<Value> items) {
  auto g = std::make_shared<Generator>();
  g->items = std::move(items);
  return Value::object(Kind::kGenerator, std::move(g));
}

// An attribute path "a.b.0" as make_attrgetter reads it.
Value attribute_path(Interpreter& in, Value value, const Value& path, const Value* fallback) {
  if (path.is_integral()) return in.get_subscript(value, path);
  const std::string text = text_of(in, path);
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t dot = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, dot - begin);
    const bool digits = !part.empty() &&
                        part.find_first_not_of("0123456789") == std::string::npos &&
                        part.size() < 10;
    value = in.get_subscript(
        value, digits ? Value::integer(std::atoi(part.c_str())) : Value::string(part));
    if (value.is(Kind::kUndefined) && fallback != nullptr) value = *fallback;
    begin = dot + 1;
  }
  return value;
}

Value fold_case(const Value& v) { return v.is_string() ? Value::string(lower(v.str())) : v; }

// --- sequences

// What map, select and their like go over: anything falsy is an empty sequence to them, none
// included.
std::vector<Value> items_of(Interpreter& in, const Value& input) {
  return truthy(input) ? iterate(input, in.budget()) : std::vector<Value>();
}

Value do_map(Interpreter& in, const Value& input, const Arguments& a) {
  std::vector<Value> out;
  const Value* attribute = a.positional.empty() ? a.find(9, "attribute") : nullptr;
  if (attribute != nullptr) {
    const Value* fallback = a.find(9, "default");
    for (const Value& item : items_of(in, input))
      out.push_back(attribute_path(in, item, *attribute, fallback));
    return generator(std::move(out));
  }
  if (a.positional.empty() || !a.positional[0].is_string())
    raise(ErrorKind::kType, "map requires a filter argument");
  const Filter filter = find_filter(a.positional[0].str());
  if (filter == nullptr)
    raise(ErrorKind::kRuntime, "No filter named '" + a.positional[0].str() + "'.");
  Arguments rest = a;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items_of(in, input)) {
    in.budget().step();
    out.push_back(filter(in, item, rest));
  }
  return generator(std::move(out));
}

// select, reject, selectattr, rejectattr.
Value choose(Interpreter& in, const Value& input, const Arguments& a, bool by_attribute,
             bool want) {
  Arguments rest = a;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) raise(ErrorKind::kType, "Missing parameter for attribute name");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = text_of(in, rest.positional[0]);
    test = find_test(name);
    if (test == nullptr) raise(ErrorKind::kRuntime, "No test named '" + name + "'.");
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> out;
  for (const Value& item : items_of(in, input)) {
    in.budget().step();
    const Value subject = by_attribute ? attribute_path(in, item, attribute, nullptr) : item;
    const bool holds = test != nullptr ? test(in, subject, rest) : truthy(subject);
    if (holds == want) out.push_back(item);
  }
  return generator(std::move(out));
}

// Items with the keys that an attribute= and case_sensitive= give, for sort, unique, min, max.
std::vector<std::pair<Value, Value>> keyed(Interpreter& in, const Value& input,
                                           const Value* attribute, bool case_sensitive) {
  std::vector<std::pair<Value, Value>> out;
  for (const Value& item : iterate(input, in.budget())) {
    const Value key = attribute != nullptr && !attribute->is(Kind::kNone)
                          ? attribute_path(in, item, *attribute, nullptr)
                          : item;
    out.emplace_back(case_sensitive ? key : fold_case(key), item);
  }
  return out;
}

Value do_sort(Interpreter& in, const Value& input, const Arguments& a) {
  auto items = keyed(in, input, a.find(2, "attribute"), a.get_bool(1, "case_sensitive", false));
  in.budget().step(static_cast<int64_t>(items.size()) * 16);
  const bool reverse = a.get_bool(0, "reverse", false);
  std::stable_sort(items.begin(), items.end(), [&](const auto& x, const auto& y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  std::vector<Value> out;
  for (auto& item : items) out.push_back(std::move(item.second));
  return Value::list(std::move(out));
}

Value do_unique(Interpreter& in, const Value& input, const Arguments& a) {
  std::vector<Value> seen;
  std::vector<Value> out;
  for (const auto& [key, item] :
       keyed(in, input, a.find(1, "attribute"), a.get_bool(0, "case_sensitive", false))) {
    in.budget().step(1 + static_cast<int64_t>(seen.size() / 8));
    const Value& k = key;
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equal(s, k); }))
      continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(std::move(out));
}

Value extreme(Interpreter& in, const Value& input, const Arguments& a, bool want_max) {
  const auto items =
      keyed(in, input, a.find(1, "attribute"), a.get_bool(0, "case_sensitive", false));
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto* best = &items[0];
  for (const auto& item : items) {
    if (want_max ? less(best->first, item.first) : less(item.first, best->first)) best = &item;
  }
  return best->second;
}

Value do_dictsort(Interpreter& in, const Value& input, const Arguments& a) {
  if (!input.is(Kind::kDict)) {
    require_defined(input);
    raise(ErrorKind::kType, "dictsort expects a mapping, not " + type_name(input));
  }
  const std::string by = text_of(in, a.get(1, "by", Value::string("key")));
  if (by != "key" && by != "value")
    raise(ErrorKind::kRuntime, "You can only sort by either \"key\" or \"value\"");
  const bool case_sensitive = a.get_bool(0, "case_sensitive", false);
  const bool reverse = a.get_bool(2, "reverse", false);
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : input.dict().items) {
    const Value& subject = by == "key" ? key : value;
    items.emplace_back(case_sensitive ? subject : fold_case(subject), Value::tuple({key, value}));
  }
  in.budget().step(static_cast<int64_t>(items.size()) * 16);
  std::stable_sort(items.begin(), items.end(), [&](const auto& x, const auto& y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  std::vector<Value> out;
  for (auto& item : items) out.push_back(std::move(item.second));
  return Value::list(std::move(out));
}

Value do_join(Interpreter& in, const Value& input, const Arguments& a) {
  const std::string separator = text_of(in, a.get(0, "d", Value::string("")));
  const Value* attribute = a.find(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(input, in.budget())) {
    if (!first) out += separator;
    first = false;
    out += text_of(in, attribute != nullptr ? attribute_path(in, item, *attribute, nullptr) : item);
    in.budget().bytes(static_cast<int64_t>(out.size() / 8));
    if (static_cast<int64_t>(out.size()) > in.budget().limits().max_output_bytes)
      in.budget().bytes(static_cast<int64_t>(out.size()));
  }
  return Value::string(std::move(out));
}

Value do_batch(Interpreter& in, const Value& input, const Arguments& a) {
  const Value* count = a.find(0, "linecount");
  if (count == nullptr || !count->is_integral() || count->as_int() < 1)
    raise(ErrorKind::kType, "batch needs a positive count");
  const Value* fill = a.find(1, "fill_with");
  std::vector<Value> out;
  std::vector<Value> row;
  for (const Value& item : iterate(input, in.budget())) {
    if (static_cast<Int>(row.size()) == count->as_int()) {
      out.push_back(Value::list(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    while (fill != nullptr && !fill->is(Kind::kNone) &&
           static_cast<Int>(row.size()) < count->as_int()) {
      in.budget().step();
      row.push_back(*fill);
    }
    out.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(out));
}

Value do_groupby(Interpreter& in, const Value& input, const Arguments& a) {
  const Value* attribute = a.find(0, "attribute");
  if (attribute == nullptr) raise(ErrorKind::kType, "groupby needs an attribute");
  auto items = keyed(in, input, attribute, a.get_bool(2, "case_sensitive", false));
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& x, const auto& y) { return less(x.first, y.first); });
  std::vector<Value> out;
  for (size_t i = 0; i < items.size();) {
    const Value key = attribute_path(in, items[i].second, *attribute, nullptr);
    const Value group_key = items[i].first;
    std::vector<Value> group;
    for (; i < items.size() && equal(items[i].first, group_key); ++i)
      group.push_back(items[i].second);
    out.push_back(Value::tuple({key, Value::list(std::move(group))}));
  }
  return Value::list(std::move(out));
}

Value do_sum(Interpreter& in, const Value& input, const Arguments& a) {
  const Value* attribute = a.find(0, "attribute");
  Value total = a.get(1, "start", Value::integer(0));
  for (const Value& item : iterate(input, in.budget())) {
    total = add(total,
                attribute != nullptr && !attribute->is(Kind::kNone)
                    ? attribute_path(in, item, *attribute, nullptr)
                    : item,
                in.budget());
  }
  return total;
}

Value do_first(Interpreter& in, const Value& input, const Arguments&) {
  if (input.is(Kind::kGenerator)) {
    auto& g = input.get<Generator>();
    return g.next < g.items.size() ? g.items[g.next++]
                                   : Value::undefined("No first item, sequence was empty.");
  }
  const std::vector<Value> items = iterate(input, in.budget());
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}
Value do_last(Interpreter& in, const Value& input, const Arguments&) {
  if (input.is(Kind::kGenerator)) raise(ErrorKind::kType, "'generator' object is not reversible");
  const std::vector<Value> items = iterate(input, in.budget());
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}
Value do_reverse(Interpreter& in, const Value& input, const Arguments&) {
  if (input.is_string()) {
    const std::u32string points = decode_utf8(input.str());
    return Value::string(encode_utf8(std::u32string(points.rbegin(), points.rend())));
  }
  std::vector<Value> items = iterate(input, in.budget());
  std::reverse(items.begin(), items.end());
  return generator(std::move(items));
}
Value do_items(Interpreter&, const Value& input, const Arguments&) {
  if (input.is(Kind::kUndefined)) return generator({});
  if (!input.is(Kind::kDict)) raise(ErrorKind::kType, "Can only get item pairs from a mapping.");
  std::vector<Value> out;
  for (const auto& [key, value] : input.dict().items) out.push_back(Value::tuple({key, value}));
  return generator(std::move(out));
}

// --- the rest

Value do_default(Interpreter&, const Value& input, const Arguments& a) {
  const bool falsy_too = a.get_bool(1, "boolean", false);
  if (input.is(Kind::kUndefined) || (falsy_too && !truthy(input)))
    return a.get(0, "default_value", Value::string(""));
  return input;
}
Value do_attr(Interpreter& in, const Value& input, const Arguments& a) {
  const Value* name = a.find(0, "name");
  if (name == nullptr) raise(ErrorKind::kType, "attr needs a name");
  const std::string text = text_of(in, *name);
  require_defined(input);
  Value method;
  if (text.rfind("__", 0) == 0)
    return Value::undefined("access to attribute '" + text + "' is unsafe.", true);
  if (find_method(input, text, &method)) return method;
  if (input.is(Kind::kNamespace)) return in.get_attribute(input, text);
  return Value::undefined("'" + type_name(input) + " object' has no attribute '" + text + "'");
}

constexpr FilterRow kSequenceFilters[] = {
    {"attr", do_attr},
    {"batch", do_batch},
    {"count", SX_FILTER(Value::integer(length(v)))},
    {"d", do_default},
    {"default", do_default},
    {"dictsort", do_dictsort},
    {"first", do_first},
    {"groupby", do_groupby},
    {"items", do_items},
    {"join", do_join},
    {"last", do_last},
    {"length", SX_FILTER(Value::integer(length(v)))},
    {"list", SX_FILTER(Value::list(iterate(v, in.budget())))},
    {"map", do_map},
    {"max", SX_FILTER(extreme(in, v, a, true))},
    {"min", SX_FILTER(extreme(in, v, a, false))},
    {"reject", SX_FILTER(choose(in, v, a, false, false))},
    {"rejectattr", SX_FILTER(choose(in, v, a, true, false))},
    {"reverse", do_reverse},
    {"select", SX_FILTER(choose(in, v, a, false, true))},
    {"selectattr", SX_FILTER(choose(in, v, a, true, true))},
    {"sort", do_sort},
    {"sum", do_sum},
    {"unique", do_unique},
};

}  // namespace

std::span<const FilterRow> sequence_filters() { return kSequenceFilters; }

Filter find_filter(std::string_view name) {
  for (const auto half : {sequence_filters(), text_filters()}) {
    for (const FilterRow& row : half) {
      if (row.name == name) return row.filter;
    }
  }
  return nullptr;
}

}  // namespace sextant::jinja
