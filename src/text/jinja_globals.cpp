// The global functions of templates, and the loop variable.
#include <algorithm>
#include <ctime>

#include "text/jinja_methods.h"

namespace sextant::jinja {
namespace {

// --- loop

constexpr MethodRow kLoopMethods[] = {
    {"cycle",
     SX_METHOD(
         if (a.positional.empty()) raise(ErrorKind::kType, "no items for cycling given");
         return a.positional[static_cast<size_t>(self.get<Loop>().index0) % a.positional.size()];)},
    {"changed", SX_METHOD(auto& loop = self.get<Loop>();
                          const bool same =
                              loop.changed_seen &&
                              std::equal(a.positional.begin(), a.positional.end(),
                                         loop.last_changed.begin(), loop.last_changed.end(), equal);
                          loop.changed_seen = true; loop.last_changed = a.positional;
                          return Value::boolean(!same);)},
};

// --- globals

Int want_int(const Value& v) {
  if (!v.is_integral()) {
    require_defined(v);
    raise(ErrorKind::kType, "'" + type_name(v) + "' object cannot be interpreted as an integer");
  }
  return v.as_int();
}

Value make_range(Interpreter&, const Value&, const Arguments& a) {
  auto range = std::make_shared<Range>();
  if (a.positional.empty() || a.positional.size() > 3)
    raise(ErrorKind::kType, "range expected 1 to 3 arguments");
  if (a.positional.size() == 1) {
    range->stop = want_int(a.positional[0]);
  } else {
    range->start = want_int(a.positional[0]);
    range->stop = want_int(a.positional[1]);
    if (a.positional.size() == 3) range->step = want_int(a.positional[2]);
  }
  constexpr Int kBound = Int{1} << 62;
  for (const Int x : {range->start, range->stop, range->step}) {
    if (x > kBound || x < -kBound) raise(ErrorKind::kLimit, "range bound beyond 62 bits");
  }
  if (range->step == 0) raise(ErrorKind::kValue, "range() arg 3 must not be zero");
  if (range->size() > 100000)
    raise(ErrorKind::kLimit,
          "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  return Value::object(Kind::kRange, range);
}

std::shared_ptr<Dict> dict_of(const Arguments& a, std::string_view function) {
  auto dict = std::make_shared<Dict>();
  if (a.positional.size() > 1)
    raise(ErrorKind::kType, std::string(function) + " expected at most 1 argument");
  if (!a.positional.empty()) {
    if (!a.positional[0].is(Kind::kDict))
      raise(ErrorKind::kType, std::string(function) + "() takes a mapping here");
    *dict = a.positional[0].dict();
  }
  for (const auto& [key, value] : a.named) dict->set(Value::string(key), value);
  return dict;
}

// strftime as Python's datetime has it, in UTC.
Value strftime_now(Interpreter& interpreter, const Value&, const Arguments& a) {
  const std::string& format = want_string(a, 0, "format", "strftime_now");
  if (format.size() > 1000) raise(ErrorKind::kLimit, "a time format of more than 1000 bytes");
  const auto now = static_cast<std::time_t>(interpreter.now_s());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::string out(format.size() * 64 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &parts));
  return Value::string(std::move(out));
}

constexpr MethodRow kGlobals[] = {
    {"range", make_range},
    {"dict", SX_METHOD(return Value::object(Kind::kDict, dict_of(a, "dict"));)},
    {"namespace",
     SX_METHOD(auto ns = std::make_shared<Namespace>(); ns->members = *dict_of(a, "namespace");
               return Value::object(Kind::kNamespace, ns);)},
    {"raise_exception",
     SX_METHOD(raise(ErrorKind::kRaise, a.positional.empty()
                                            ? std::string()
                                            : to_text(a.positional[0], in.budget()));)},
    {"strftime_now", strftime_now},
};
}  // namespace

bool find_loop_method(const Value& object, std::string_view name, Value* method) {
  return bind_from(kLoopMethods, object, name, method);
}

Value loop_attribute(const Value& object, const std::string& name) {
  const auto& loop = object.get<Loop>();
  const auto n = static_cast<int64_t>(loop.items->size());
  const int64_t i = loop.index0;
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "revindex") return Value::integer(n - i);
  if (name == "revindex0") return Value::integer(n - i - 1);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i == n - 1);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(loop.depth);
  if (name == "depth0") return Value::integer(loop.depth - 1);
  if (name == "previtem")
    return i > 0 ? (*loop.items)[static_cast<size_t>(i - 1)]
                 : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return i + 1 < n ? (*loop.items)[static_cast<size_t>(i + 1)]
                     : Value::undefined("there is no next item");
  Value method;
  if (find_method(object, name, &method)) return method;
  return Value::undefined("'LoopContext object' has no attribute '" + name + "'");
}

void add_globals(Scope& scope) {
  for (const MethodRow& row : kGlobals) {
    scope.names[std::string(row.name)] = Value::object<Callable>(
        Kind::kCallable, std::make_shared<BoundMethod>(row.method, Value()));
  }
}

}  // namespace sextant::jinja
