// Expressions of templates (jinja_parser.h).
#include "text/jinja_parser.h"

namespace sextant::jinja {

bool ExpressionParser::at_tuple_end() const {
  const TokenType type = peek().type;
  return type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || is_op(")");
}

// One expression, or several with commas between. A single one without a comma is itself.
ExprPtr ExpressionParser::tuple(bool with_conditional, bool parenthesized) {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end()) {
    items.push_back(with_conditional ? expression() : parse_or());
    if (!is_op(",")) break;
    next();
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parenthesized) fail("expected an expression, got " + describe(peek()));
  }
  ExprPtr e = make(ExprType::kTuple);
  e->operands = std::move(items);
  return e;
}

ExprPtr ExpressionParser::expression() {
  const Depth guard(*this);
  ExprPtr value = parse_or();
  while (is_name("if")) {
    next();
    ExprPtr e = make(ExprType::kConditional);
    ExprPtr test = parse_or();
    ExprPtr otherwise = skip_name("else") ? expression() : nullptr;
    e->operands.push_back(std::move(value));
    e->operands.push_back(std::move(test));
    e->operands.push_back(std::move(otherwise));
    value = std::move(e);
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or")) left = binary(ExprType::kOr, std::move(left), parse_and());
  return left;
}
ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) left = binary(ExprType::kAnd, std::move(left), parse_not());
  return left;
}
ExprPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return compare();
  const Depth guard(*this);
  next();
  return unary(ExprType::kNot, parse_not());
}

ExprPtr ExpressionParser::compare() {
  ExprPtr first = sum();
  ExprPtr e;
  for (;;) {
    std::string op;
    for (const std::string_view candidate : {"==", "!=", "<", "<=", ">", ">="}) {
      if (is_op(candidate)) op = candidate;
    }
    if (!op.empty()) {
      next();
    } else if (skip_name("in")) {
      op = "in";
    } else if (is_name("not") && is_name("in", 1)) {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    if (e == nullptr) {
      e = make(ExprType::kCompare);
      e->operands.push_back(std::move(first));
    }
    e->compare_ops.push_back(op);
    e->operands.push_back(sum());
  }
  return e != nullptr ? std::move(e) : std::move(first);
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concat();
  while (is_op("+") || is_op("-")) {
    const char op = next().text[0];
    left = binary(ExprType::kBinary, std::move(left), concat(), op);
  }
  return left;
}
ExprPtr ExpressionParser::concat() {
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr e = make(ExprType::kConcat);
  e->operands.push_back(std::move(first));
  while (skip_op("~")) e->operands.push_back(product());
  return e;
}
ExprPtr ExpressionParser::product() {
  ExprPtr left = parse_power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const std::string op = next().text;
    left = binary(ExprType::kBinary, std::move(left), parse_power(), op == "//" ? 'f' : op[0]);
  }
  return left;
}
ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (skip_op("**")) left = binary(ExprType::kBinary, std::move(left), parse_unary(true), 'p');
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Depth guard(*this);
  ExprPtr e;
  if (skip_op("-")) {
    e = unary(ExprType::kNegate, parse_unary(false));
  } else if (skip_op("+")) {
    e = unary(ExprType::kPlus, parse_unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filters(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = peek();
  switch (token.type) {
    case TokenType::kName: {
      next();
      if (token.text == "true" || token.text == "True") return literal(Value::boolean(true));
      if (token.text == "false" || token.text == "False") return literal(Value::boolean(false));
      if (token.text == "none" || token.text == "None") return literal(Value::none());
      ExprPtr e = make(ExprType::kName);
      e->name = token.text;
      return e;
    }
    case TokenType::kString: {
      std::string text;
      while (peek().type == TokenType::kString) text += next().text;
      return literal(Value::string(std::move(text)));
    }
    case TokenType::kInteger:
    case TokenType::kFloat: next(); return literal(token.value);
    case TokenType::kOperator:
      if (token.text == "(") {
        next();
        ExprPtr e = tuple(true, true);
        expect_op(")");
        return e;
      }
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    default: break;
  }
  fail("unexpected " + describe(token));
}

ExprPtr ExpressionParser::list() {
  ExprPtr e = make(ExprType::kList);
  next();
  while (!is_op("]")) {
    if (!e->operands.empty()) expect_op(",");
    if (is_op("]")) break;
    e->operands.push_back(expression());
  }
  next();
  return e;
}

ExprPtr ExpressionParser::dict() {
  ExprPtr e = make(ExprType::kDict);
  next();
  while (!is_op("}")) {
    if (!e->operands.empty()) expect_op(",");
    if (is_op("}")) break;
    e->operands.push_back(expression());
    expect_op(":");
    e->operands.push_back(expression());
  }
  next();
  return e;
}

ExprPtr ExpressionParser::postfix(ExprPtr e) {
  for (int n = 0;; ++n) {
    if (n > 1000) fail("more than 1000 subscripts in a row");
    if (is_op(".")) {
      next();
      if (peek().type == TokenType::kInteger) {
        ExprPtr item = make(ExprType::kGetItem);
        item->operands.push_back(std::move(e));
        item->operands.push_back(literal(next().value));
        e = std::move(item);
      } else {
        ExprPtr attribute = make(ExprType::kGetAttr);
        attribute->name = expect_name();
        attribute->operands.push_back(std::move(e));
        e = std::move(attribute);
      }
    } else if (is_op("[")) {
      e = subscript(std::move(e));
    } else if (is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  next();
  ExprPtr bounds[3];
  bool is_slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!is_op(":") && !is_op("]")) bounds[i] = i == 0 ? tuple_item() : expression();
    if (!is_op(":") || i == 2) break;
    next();
    is_slice = true;
  }
  if (!is_slice && bounds[0] == nullptr) fail("expected subscript expression");
  expect_op("]");
  ExprPtr e = make(is_slice ? ExprType::kSlice : ExprType::kGetItem);
  e->operands.push_back(std::move(object));
  for (int i = 0; i < (is_slice ? 3 : 1); ++i) e->operands.push_back(std::move(bounds[i]));
  return e;
}
// x[a, b] is x[(a, b)].
ExprPtr ExpressionParser::tuple_item() {
  ExprPtr first = expression();
  if (!is_op(",")) return first;
  ExprPtr e = make(ExprType::kTuple);
  e->operands.push_back(std::move(first));
  while (skip_op(",")) e->operands.push_back(expression());
  return e;
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  ExprPtr e = make(ExprType::kCall);
  e->operands.push_back(std::move(callee));
  arguments(*e);
  return e;
}

void ExpressionParser::arguments(Expr& e) {
  expect_op("(");
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    if (skip_op("**")) {
      if (e.double_star != nullptr) fail("invalid syntax for function call expression");
      e.double_star = expression();
    } else if (skip_op("*")) {
      if (e.star != nullptr || e.double_star != nullptr)
        fail("invalid syntax for function call expression");
      e.star = expression();
    } else if (peek().type == TokenType::kName && is_op("=", 1)) {
      if (e.double_star != nullptr) fail("invalid syntax for function call expression");
      std::string name = next().text;
      next();
      e.named.emplace_back(std::move(name), expression());
    } else {
      if (!e.named.empty() || e.star != nullptr || e.double_star != nullptr)
        fail("invalid syntax for function call expression");
      e.operands.push_back(expression());
    }
  }
  next();
}

// | filters, "is" tests and calls behind a value.
ExprPtr ExpressionParser::filters(ExprPtr e) {
  for (int n = 0;; ++n) {
    if (n > 1000) fail("more than 1000 filters in a row");
    if (is_op("|")) {
      next();
      e = one_filter(std::move(e));
    } else if (is_name("is")) {
      next();
      e = test(std::move(e));
    } else if (is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}
// "name(args) | name ..." without a first bar, over an input that is filled in when it runs.
ExprPtr ExpressionParser::filter_chain(ExprPtr input) {
  ExprPtr e = one_filter(std::move(input));
  while (skip_op("|")) e = one_filter(std::move(e));
  return e;
}
ExprPtr ExpressionParser::one_filter(ExprPtr input) {
  ExprPtr e = make(ExprType::kFilter);
  e->name = expect_name();
  while (skip_op(".")) e->name += "." + expect_name();
  e->filter = find_filter(e->name);
  e->operands.push_back(std::move(input));
  if (is_op("(")) arguments(*e);
  return e;
}

ExprPtr ExpressionParser::test(ExprPtr input) {
  const bool negated = skip_name("not");
  ExprPtr e = make(ExprType::kTest);
  if (peek().type != TokenType::kName) fail("expected the name of a test, got " + describe(peek()));
  e->name = next().text;
  e->test = find_test(e->name);
  e->operands.push_back(std::move(input));
  if (is_op("(")) {
    arguments(*e);
  } else if (starts_test_argument()) {
    if (is_name("is")) fail("You cannot chain multiple tests with is");
    e->operands.push_back(postfix(primary()));
  }
  return negated ? unary(ExprType::kNot, std::move(e)) : std::move(e);
}
bool ExpressionParser::starts_test_argument() const {
  switch (peek().type) {
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat: return true;
    case TokenType::kName: {
      for (const std::string_view word : {"else", "or", "and", "if", "in", "not"}) {
        if (is_name(word)) return false;
      }
      return true;
    }
    default: return is_op("[") || is_op("{");
  }
}

}  // namespace sextant::jinja
