// Values of the template language, with Python's meaning: integers stay integers (128 bits here;
// beyond is an error), dicts keep their order, strings are sequences of code points. Containers are
// immutable, as in transformers' sandbox; only namespaces change.
//
// Errors inside the interpreter are C++ exceptions (TemplateError), thrown and caught within
// jinja_*.cpp and chat.cpp: nothing escapes ChatTemplate. Every allocation and step is charged to a
// Budget, so that no template can run away (serving.md 4.2).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat.h"

namespace sextant::jinja {

__extension__ typedef __int128 Int;

enum class ErrorKind : uint8_t {
  kRaise,      // raise_exception of the template
  kUndefined,  // use of an undefined value
  kType,
  kSyntax,
  kSecurity,  // what the sandbox forbids
  kArithmetic,
  kValue,
  kLimit,  // a budget of TemplateLimits
  kRuntime,
};
std::string_view error_kind_name(ErrorKind kind);

struct TemplateError {
  ErrorKind kind;
  std::string message;
  int line = 0;  // 1-based; 0: not known
};
[[noreturn]] void raise(ErrorKind kind, std::string message, int line = 0);

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.items(), .keys(), .values(): iterable, not indexable
  kRange,
  kGenerator,  // what map, select and their like return: always true, iterated once
  kNamespace,
  kLoop,
  kCallable,
};

class Value;
struct Str;
struct List;
struct Dict;
struct Undefined;
struct Range;
struct Generator;
struct Namespace;
struct Loop;
struct Callable;

class Value {
 public:
  Value() = default;  // undefined without a name
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(Int i);
  static Value real(double d);
  static Value string(std::string s, bool markup = false);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value undefined(std::string message, bool unsafe = false);
  template <class T>
  static Value object(Kind kind, std::shared_ptr<T> object) {
    Value v(kind);
    v.object_ = std::move(object);
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence_type() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integral() const {
    return kind_ == Kind::kInt || kind_ == Kind::kBool;
  }  // bool is an int in Python
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return scalar_.i != 0; }
  Int as_int() const { return scalar_.i; }  // kInt and kBool
  double as_double() const {
    return kind_ == Kind::kFloat ? scalar_.d : static_cast<double>(scalar_.i);
  }
  const std::string& str() const;
  bool is_markup() const;
  const std::vector<Value>& items() const;  // kList, kTuple, kView
  const Dict& dict() const;
  template <class T>
  T& get() const {
    return *static_cast<T*>(object_.get());
  }
  const void* identity() const { return object_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  union Scalar {
    Int i;
    double d;
  } scalar_{0};
  std::shared_ptr<void> object_;
};

struct Str {
  std::string bytes;  // UTF-8
  bool markup = false;
};
struct List {
  std::vector<Value> items;
  const char* view_name = "";  // kView: "dict_items", ...
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  const Value* find(const Value& key) const;  // nullptr where there is none
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);  // while it is being built
};
struct Undefined {
  std::string message;  // "'name' is undefined"
  bool unsafe = false;  // use is a security error
};
struct Range {
  Int start = 0, stop = 0, step = 1;
  int64_t size() const;
};
struct Generator {
  std::vector<Value> items;
  size_t next = 0;
};
struct Namespace {
  Dict members;
};
struct Loop {
  const std::vector<Value>* items = nullptr;  // valid while the loop runs
  int64_t index0 = 0;
  int64_t depth = 1;
  std::vector<Value> last_changed;
  bool changed_seen = false;
};

// Steps, bytes and depth left to one rendering.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits), steps_left_(limits.max_steps) {}
  void step(int64_t n = 1) {
    steps_left_ -= n;
    if (steps_left_ < 0)
      raise(ErrorKind::kLimit,
            "template budget exceeded: more than " + std::to_string(limits_.max_steps) + " steps");
  }
  // A string or container of n bytes is about to be made.
  void bytes(int64_t n);
  void enter() {
    if (++depth_ > limits_.max_depth)
      raise(ErrorKind::kLimit,
            "template budget exceeded: nested deeper than " + std::to_string(limits_.max_depth));
  }
  void leave() { --depth_; }
  const TemplateLimits& limits() const { return limits_; }

 private:
  TemplateLimits limits_;
  int64_t steps_left_;
  int depth_ = 0;
};
struct DepthGuard {
  explicit DepthGuard(Budget& b) : budget(b) { budget.enter(); }
  ~DepthGuard() { budget.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  Budget& budget;
};

// Python's operators on values.
std::string type_name(const Value& v);  // "str", "int", "list", ... for messages
bool truthy(const Value& v);
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);  // type error where Python has one
bool contains(const Value& container, const Value& item, Budget& budget);
int64_t length(const Value& v);
std::vector<Value> iterate(const Value& v, Budget& budget);  // a generator is used up
Value add(const Value& a, const Value& b, Budget& budget);
Value arithmetic(char op, const Value& a, const Value& b, Budget& budget);  // - * / f(loor) % p(ow)
Value negate(const Value& v);
Value get_item(const Value& object, const Value& key,
               Budget& budget);  // x[key]; undefined where there is none
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget);
[[noreturn]] void raise_undefined(const Value& v);
void require_defined(const Value& v);

// Text (jinja_print.cpp).
std::string int_to_string(Int i);
std::string float_repr(double d);
std::string to_text(const Value& v, Budget& budget);  // str(v)
std::string repr(const Value& v, Budget& budget);
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& v, const JsonStyle& style, Budget& budget);
std::string percent_format(const std::string& format, const Value& arguments, Budget& budget);
std::string brace_format(const std::string& format, const struct Arguments& arguments,
                         Budget& budget);

Value from_json(const Json& json, int depth = 0);

// Arguments of a call, and how builtin functions read them.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at a position or of a name; nullptr where it was not given.
  const Value* find(size_t position, std::string_view name) const;
  Value get(size_t position, std::string_view name, Value fallback) const;
  bool get_bool(size_t position, std::string_view name, bool fallback) const;
  // A type error when there are more than n positional arguments or a name outside the list.
  void at_most(size_t n, std::initializer_list<std::string_view> names,
               std::string_view function) const;
};

class Interpreter;
struct Callable {
  virtual ~Callable() = default;
  virtual Value call(Interpreter& interpreter, const Arguments& arguments) = 0;
};

// Attributes and methods (jinja_methods.cpp): x.name as Python's getattr would give it on str,
// dict, list ...; false where there is none.
bool find_method(const Value& object, std::string_view name, Value* method);

// Filters and tests (jinja_filters.cpp, jinja_tests.cpp).
using Filter = Value (*)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
using Test = bool (*)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
Filter find_filter(std::string_view name);  // nullptr where there is none
Test find_test(std::string_view name);

}  // namespace sextant::jinja
