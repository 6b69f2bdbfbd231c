// What tables of methods and global functions share.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_interpreter.h"

namespace sextant::jinja {

using Method = Value (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);

struct BoundMethod final : Callable {
  BoundMethod(Method m, Value s) : method(m), self(std::move(s)) {}
  Method method;
  Value self;
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return method(interpreter, self, arguments);
  }
};

struct MethodRow {
  std::string_view name;
  Method method;
};

inline const std::string& want_string(const Arguments& a, size_t i, std::string_view name,
                                      std::string_view function) {
  const Value* v = a.find(i, name);
  if (v == nullptr)
    raise(ErrorKind::kType,
          std::string(function) + "() missing argument '" + std::string(name) + "'");
  if (!v->is_string()) {
    require_defined(*v);
    raise(ErrorKind::kType,
          std::string(function) + "() argument must be str, not " + type_name(*v));
  }
  return v->str();
}
inline int64_t want_count(const Arguments& a, size_t i, std::string_view name, int64_t fallback) {
  const Value* v = a.find(i, name);
  if (v == nullptr) return fallback;
  if (!v->is_integral()) {
    require_defined(*v);
    raise(ErrorKind::kType, "an integer is required, not " + type_name(*v));
  }
  const Int n = v->as_int();
  return n < 0 ? -1 : n > (int64_t{1} << 40) ? (int64_t{1} << 40) : static_cast<int64_t>(n);
}
template <size_t N>
bool bind_from(const MethodRow (&rows)[N], const Value& object, std::string_view name,
               Value* method) {
  for (const MethodRow& row : rows) {
    if (row.name != name) continue;
    *method =
        Value::object<Callable>(Kind::kCallable, std::make_shared<BoundMethod>(row.method, object));
    return true;
  }
  return false;
}
bool find_loop_method(const Value& object, std::string_view name,
                      Value* method);  // jinja_globals.cpp

}  // namespace sextant::jinja

#define SX_METHOD(body)                                                 \
  [](Interpreter& in, const Value& self, const Arguments& a) -> Value { \
    (void)in;                                                           \
    (void)self;                                                         \
    (void)a;                                                            \
    body                                                                \
  }
