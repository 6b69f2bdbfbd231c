// The parser's two halves: expressions (jinja_parser_expression.cpp) and statements
// (jinja_parser.cpp). Recursive descent with Jinja's precedence: conditional, or, and, not,
// comparison, + -, ~, * / // %, **, unary, postfix, filters and tests. Nesting is bounded by
// TemplateLimits::max_depth, so no source can overflow the stack.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"

namespace sextant::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, const TemplateLimits& limits)
      : tokens_(std::move(tokens)), max_depth_(limits.max_depth) {}

  // --- tokens
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_op(std::string_view op, size_t ahead = 0) const {
    return peek(ahead).type == TokenType::kOperator && peek(ahead).text == op;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).type == TokenType::kName && peek(ahead).text == name;
  }
  bool skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    next();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail("expected token '" + std::string(op) + "', got " + describe(peek()));
  }
  std::string expect_name() {
    if (peek().type != TokenType::kName) fail("expected a name, got " + describe(peek()));
    return next().text;
  }
  void expect_block_end() {
    if (peek().type != TokenType::kBlockEnd)
      fail("expected token 'end of statement block', got " + describe(peek()));
    next();
  }
  static std::string describe(const Token& token) {
    switch (token.type) {
      case TokenType::kEnd: return "end of template";
      case TokenType::kBlockEnd: return "end of statement block";
      case TokenType::kVariableEnd: return "end of print statement";
      case TokenType::kData: return "template data";
      default: return "'" + token.text + "'";
    }
  }
  [[noreturn]] void fail(const std::string& message) const {
    raise(ErrorKind::kSyntax, message, peek().line);
  }

  struct Depth {
    explicit Depth(ExpressionParser& p) : parser(p) {
      if (++parser.depth_ > parser.max_depth_)
        parser.fail("nested deeper than " + std::to_string(parser.max_depth_));
    }
    ~Depth() { --parser.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ExpressionParser& parser;
  };

  ExprPtr make(ExprType type) const {
    auto e = std::make_unique<Expr>();
    e->type = type;
    e->line = peek().line;
    return e;
  }
  ExprPtr literal(Value v) const {
    ExprPtr e = make(ExprType::kLiteral);
    e->literal = std::move(v);
    return e;
  }
  ExprPtr unary(ExprType type, ExprPtr operand) const {
    ExprPtr e = make(type);
    e->operands.push_back(std::move(operand));
    return e;
  }
  ExprPtr binary(ExprType type, ExprPtr a, ExprPtr b, char op = 0) const {
    ExprPtr e = make(type);
    e->op = op;
    e->operands.push_back(std::move(a));
    e->operands.push_back(std::move(b));
    return e;
  }

  // --- expressions
  bool at_tuple_end() const;
  ExprPtr tuple(bool with_conditional, bool parenthesized = false);
  ExprPtr expression();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr primary();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr e);
  ExprPtr subscript(ExprPtr object);
  ExprPtr tuple_item();
  ExprPtr call(ExprPtr callee);
  void arguments(Expr& e);
  ExprPtr filters(ExprPtr e);
  ExprPtr filter_chain(ExprPtr input);
  ExprPtr one_filter(ExprPtr input);
  ExprPtr test(ExprPtr input);
  bool starts_test_argument() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int max_depth_;
};

}  // namespace sextant::jinja
