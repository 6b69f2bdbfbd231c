// Statements of templates (jinja_parser.h).
#include <algorithm>

#include "text/jinja_parser.h"

namespace sextant::jinja {
namespace {

constexpr std::string_view kUnsupportedTags[] = {
    "include", "import", "from", "extends", "block", "do", "autoescape", "trans", "print"};

class Parser : private ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits)
      : ExpressionParser(std::move(tokens), limits) {}

  Body run() {
    Body body = statements({});
    if (peek().type != TokenType::kEnd) fail("unexpected end of a block");
    return body;
  }

 private:
  // --- statements
  Body statements(std::initializer_list<std::string_view> ends) {
    const Depth guard(*this);
    Body body;
    for (;;) {
      const Token& token = peek();
      if (token.type == TokenType::kEnd) {
        if (ends.size() > 0)
          fail("unexpected end of template, expected '" + std::string(*ends.begin()) + "'");
        return body;
      }
      if (token.type == TokenType::kData) {
        auto node = make_node(NodeType::kData);
        node->text = next().text;
        body.push_back(std::move(node));
      } else if (token.type == TokenType::kVariableBegin) {
        next();
        auto node = make_node(NodeType::kOutput);
        node->value = tuple(true);
        if (peek().type != TokenType::kVariableEnd)
          fail("expected token 'end of print statement', got " + describe(peek()));
        next();
        body.push_back(std::move(node));
      } else {
        next();  // block begin
        if (peek().type != TokenType::kName) fail("tag name expected");
        if (std::find(ends.begin(), ends.end(), peek().text) != ends.end()) return body;
        body.push_back(statement());
      }
    }
  }

  NodePtr make_node(NodeType type) const {
    auto node = std::make_unique<Node>();
    node->type = type;
    node->line = peek().line;
    return node;
  }

  NodePtr statement() {
    const std::string tag = next().text;
    if (tag == "for") return parse_for();
    if (tag == "if") return parse_if();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call_block();
    if (tag == "filter") return parse_filter_block();
    if (tag == "with") return parse_with();
    if (tag == "generation") {
      auto node = make_node(NodeType::kGeneration);
      finish(*node, {"endgeneration"});
      return node;
    }
    if (tag == "break" || tag == "continue") {
      if (loop_depth_ == 0) fail("'" + tag + "' outside a loop");
      auto node = make_node(tag == "break" ? NodeType::kBreak : NodeType::kContinue);
      expect_block_end();
      return node;
    }
    if (std::find(std::begin(kUnsupportedTags), std::end(kUnsupportedTags), tag) !=
        std::end(kUnsupportedTags)) {
      fail("tag '" + tag + "' is not supported in chat templates");
    }
    fail("Encountered unknown tag '" + tag + "'");
  }

  // The end of the begin tag, a body, and the end tag.
  void finish(Node& node, std::initializer_list<std::string_view> ends) {
    expect_block_end();
    node.body = statements(ends);
    next();
    expect_block_end();
  }

  NodePtr parse_for() {
    auto node = make_node(NodeType::kFor);
    node->target = assign_target(true);
    if (!skip_name("in")) fail("expected 'in', got " + describe(peek()));
    node->value = tuple(false);
    if (skip_name("if")) node->condition = expression();
    if (is_name("recursive")) fail("recursive loops are not supported in chat templates");
    expect_block_end();
    ++loop_depth_;
    node->body = statements({"endfor", "else"});
    --loop_depth_;
    if (next().text == "else") {
      expect_block_end();
      node->otherwise = statements({"endfor"});
      next();
    }
    expect_block_end();
    return node;
  }

  NodePtr parse_if() {
    auto node = make_node(NodeType::kIf);
    for (;;) {
      ExprPtr condition = tuple(false);
      expect_block_end();
      Body body = statements({"endif", "elif", "else"});
      node->branches.emplace_back(std::move(condition), std::move(body));
      const std::string tag = next().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        expect_block_end();
        node->otherwise = statements({"endif"});
        next();
      }
      expect_block_end();
      return node;
    }
  }

  NodePtr parse_set() {
    auto node = make_node(NodeType::kSet);
    node->target = assign_target(false);
    if (skip_op("=")) {
      node->value = tuple(true);
      expect_block_end();
      return node;
    }
    node->type = NodeType::kSetBlock;
    if (is_op("|")) node->value = filters(nullptr);
    finish(*node, {"endset"});
    return node;
  }

  // A macro's parameters, from "(" to ")".
  void signature(Node& node) {
    expect_op("(");
    while (!is_op(")")) {
      if (!node.parameters.empty()) expect_op(",");
      MacroParameter parameter;
      parameter.name = expect_name();
      if (skip_op("=")) {
        parameter.fallback = expression();
      } else if (!node.parameters.empty() && node.parameters.back().fallback != nullptr) {
        fail("non-default argument follows default argument");
      }
      node.parameters.push_back(std::move(parameter));
    }
    next();
  }

  // The body of a macro or call block. Loops around it are not its loops; its special names are
  // noted.
  void macro_body(Node& node, std::string_view end) {
    const int loops = loop_depth_;
    loop_depth_ = 0;
    const size_t begin = at_;
    finish(node, {end});
    loop_depth_ = loops;
    for (size_t i = begin; i < at_; ++i) {
      if (tokens_[i].type != TokenType::kName) continue;
      node.uses_varargs |= tokens_[i].text == "varargs";
      node.uses_kwargs |= tokens_[i].text == "kwargs";
      node.uses_caller |= tokens_[i].text == "caller";
    }
  }

  NodePtr parse_macro() {
    auto node = make_node(NodeType::kMacro);
    node->text = expect_name();
    signature(*node);
    macro_body(*node, "endmacro");
    return node;
  }

  NodePtr parse_call_block() {
    auto node = make_node(NodeType::kCallBlock);
    if (is_op("(")) signature(*node);
    node->value = expression();
    if (node->value->type != ExprType::kCall) fail("expected call");
    macro_body(*node, "endcall");
    return node;
  }

  NodePtr parse_filter_block() {
    auto node = make_node(NodeType::kFilterBlock);
    node->value = filter_chain(nullptr);
    finish(*node, {"endfilter"});
    return node;
  }

  NodePtr parse_with() {
    auto node = make_node(NodeType::kWith);
    while (peek().type != TokenType::kBlockEnd) {
      if (!node->bindings.empty()) expect_op(",");
      std::string name = expect_name();
      expect_op("=");
      node->bindings.emplace_back(std::move(name), expression());
    }
    finish(*node, {"endwith"});
    return node;
  }

  // A name, ns.attribute (set only), or names to unpack into.
  ExprPtr assign_target(bool in_for) {
    const auto one = [&]() -> ExprPtr {
      if (skip_op("(")) {
        ExprPtr inner = assign_target(in_for);
        expect_op(")");
        return inner;
      }
      ExprPtr e = make(ExprType::kName);
      e->name = expect_name();
      for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
        if (e->name == reserved) fail("can't assign to '" + e->name + "'");
      }
      if (!in_for && is_op(".")) {
        next();
        ExprPtr attribute = make(ExprType::kGetAttr);
        attribute->name = expect_name();
        attribute->operands.push_back(std::move(e));
        return attribute;
      }
      return e;
    };
    ExprPtr first = one();
    if (!is_op(",")) return first;
    ExprPtr targets = make(ExprType::kTuple);
    targets->operands.push_back(std::move(first));
    while (skip_op(",")) {
      if (is_name("in") || is_op("=")) break;
      targets->operands.push_back(one());
    }
    return targets;
  }

  int loop_depth_ = 0;
};

}  // namespace

Body parse(std::string_view source, const TemplateLimits& limits) {
  Body body = Parser(tokenize(source), limits).run();
  check_names(body, false);
  return body;
}

}  // namespace sextant::jinja
