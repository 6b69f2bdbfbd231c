// The tests ("x is string") of Jinja, with Python's meaning.
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace sextant::jinja {
namespace {

const Value& operand(const Arguments& a) {
  if (a.positional.empty()) raise(ErrorKind::kType, "this test needs an argument");
  return a.positional[0];
}
Int remainder(Interpreter& in, const Value& v, Int divisor) {
  const Value r = arithmetic('%', v, Value::integer(divisor), in.budget());
  return r.is_integral() ? r.as_int() : r.as_double() != 0.0 ? 2 : 0;
}
bool has_items(const Value& v) {
  switch (v.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kUndefined: return true;
    default: return false;
  }
}
struct TestRow {
  std::string_view name;
  Test test;
};
#define SX_TEST(expression)                                         \
  [](Interpreter& in, const Value& v, const Arguments& a) -> bool { \
    (void)in;                                                       \
    (void)a;                                                        \
    return expression;                                              \
  }
constexpr TestRow kTests[] = {
    {"defined", SX_TEST(!v.is(Kind::kUndefined))},
    {"undefined", SX_TEST(v.is(Kind::kUndefined))},
    {"none", SX_TEST(v.is(Kind::kNone))},
    {"boolean", SX_TEST(v.is(Kind::kBool))},
    {"true", SX_TEST(v.is(Kind::kBool) && v.as_bool())},
    {"false", SX_TEST(v.is(Kind::kBool) && !v.as_bool())},
    {"integer", SX_TEST(v.is(Kind::kInt))},
    {"float", SX_TEST(v.is(Kind::kFloat))},
    {"number", SX_TEST(v.is_number())},
    {"string", SX_TEST(v.is_string())},
    {"mapping", SX_TEST(v.is(Kind::kDict))},
    {"sequence", SX_TEST(has_items(v))},
    {"iterable",
     SX_TEST(has_items(v) || v.is(Kind::kView) || v.is(Kind::kGenerator) || v.is(Kind::kLoop))},
    {"callable", SX_TEST(v.is(Kind::kCallable) || v.is(Kind::kUndefined))},
    {"odd", SX_TEST(remainder(in, v, 2) == 1)},
    {"even", SX_TEST(remainder(in, v, 2) == 0)},
    {"divisibleby", SX_TEST(truthy(Value::boolean(
                        equal(arithmetic('%', v, operand(a), in.budget()), Value::integer(0)))))},
    {"lower", SX_TEST(is_lower(to_text(v, in.budget())))},
    {"upper", SX_TEST(is_upper(to_text(v, in.budget())))},
    {"sameas", SX_TEST(v.kind() == operand(a).kind() && v.identity() == operand(a).identity() &&
                       equal(v, operand(a)))},
    {"escaped", SX_TEST(v.is_markup())},
    {"in", SX_TEST(contains(operand(a), v, in.budget()))},
    {"filter", SX_TEST(v.is_string() && find_filter(v.str()) != nullptr)},
    {"test", SX_TEST(v.is_string() && find_test(v.str()) != nullptr)},
    {"==", SX_TEST(equal(v, operand(a)))},
    {"eq", SX_TEST(equal(v, operand(a)))},
    {"equalto", SX_TEST(equal(v, operand(a)))},
    {"!=", SX_TEST(!equal(v, operand(a)))},
    {"ne", SX_TEST(!equal(v, operand(a)))},
    {">", SX_TEST(less(operand(a), v))},
    {"gt", SX_TEST(less(operand(a), v))},
    {"greaterthan", SX_TEST(less(operand(a), v))},
    {"<", SX_TEST(less(v, operand(a)))},
    {"lt", SX_TEST(less(v, operand(a)))},
    {"lessthan", SX_TEST(less(v, operand(a)))},
    {">=", SX_TEST(less(operand(a), v) || equal(v, operand(a)))},
    {"ge", SX_TEST(less(operand(a), v) || equal(v, operand(a)))},
    {"<=", SX_TEST(less(v, operand(a)) || equal(v, operand(a)))},
    {"le", SX_TEST(less(v, operand(a)) || equal(v, operand(a)))},
};
#undef SX_TEST

}  // namespace

Test find_test(std::string_view name) {
  for (const TestRow& row : kTests) {
    if (row.name == name) return row.test;
  }
  return nullptr;
}

}  // namespace sextant::jinja
