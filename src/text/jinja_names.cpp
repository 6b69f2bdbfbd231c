// Which unknown filters and tests are refused when a template is parsed (check_names): Jinja's
// "soft" frames are the branches of an if and of a conditional expression; loops, macros and blocks
// inside them are strict again.
#include "text/jinja_ast.h"

namespace sextant::jinja {
namespace {

void check(const ExprPtr& e, bool soft) {
  if (e == nullptr) return;
  const bool inner = soft || e->type == ExprType::kConditional;
  if (!soft && e->type == ExprType::kFilter && e->filter == nullptr) {
    raise(ErrorKind::kSyntax, "No filter named '" + e->name + "'.", e->line);
  }
  if (!soft && e->type == ExprType::kTest && e->test == nullptr) {
    raise(ErrorKind::kSyntax, "No test named '" + e->name + "'.", e->line);
  }
  for (const ExprPtr& operand : e->operands) check(operand, inner);
  for (const auto& named : e->named) check(named.second, inner);
  check(e->star, inner);
  check(e->double_star, inner);
}

void check(const Node& node, bool soft) {
  const bool block_value = node.type == NodeType::kSetBlock || node.type == NodeType::kFilterBlock;
  check(node.value, soft && !block_value);
  check(node.condition, false);
  for (const auto& binding : node.bindings) check(binding.second, false);
  for (const MacroParameter& parameter : node.parameters) check(parameter.fallback, false);
  for (const auto& branch : node.branches) {
    check(branch.first, true);
    check_names(branch.second, true);
  }
  check_names(node.body, false);
  check_names(node.otherwise, node.type == NodeType::kIf);
}

}  // namespace

void check_names(const Body& body, bool soft) {
  for (const NodePtr& node : body) check(*node, soft);
}

}  // namespace sextant::jinja
