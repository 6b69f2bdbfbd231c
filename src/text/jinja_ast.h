// The tree a template is parsed into, and the lexer's tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace sextant::jinja {

enum class TokenType : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;  // names, operators; strings decoded; data
  Value value;       // numbers
  int line = 1;
};

// Splits a source as Jinja does with trim_blocks and lstrip_blocks on, and the last line end
// dropped.
std::vector<Token> tokenize(std::string_view source);

struct Expr;
struct Node;
using ExprPtr = std::unique_ptr<Expr>;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

enum class ExprType : uint8_t {
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,  // kDict: operands are key, value, key, value ...
  kGetAttr,
  kGetItem,
  kSlice,  // kSlice: object, start, stop, step (null where absent)
  kCall,
  kFilter,
  kTest,  // operands[0]: callee or input; the arguments follow
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kConcat,   // kBinary: op
  kCompare,  // operands a, b, c with compare_ops between
  kAnd,
  kOr,
  kConditional,  // kConditional: then, test, else (null where absent)
};

struct Expr {
  ExprType type = ExprType::kLiteral;
  int line = 1;
  std::string name;  // kName, kGetAttr, kFilter, kTest
  char op = 0;       // kBinary: + - * / f % p
  Value literal;
  std::vector<ExprPtr> operands;  // kCall, kFilter, kTest: [0] and positional arguments
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;                          // *args
  ExprPtr double_star;                   // **kwargs
  std::vector<std::string> compare_ops;  // "==", "!=", "<", "<=", ">", ">=", "in", "not in"
  Filter filter = nullptr;  // null: no such filter, which only matters when it is reached
  Test test = nullptr;
};

enum class NodeType : uint8_t {
  kData,
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
  kGeneration
};

struct MacroParameter {
  std::string name;
  ExprPtr fallback;  // null where there is none
};

struct Node {
  NodeType type = NodeType::kData;
  int line = 1;
  std::string text;   // kData; kMacro: name
  ExprPtr target;     // kFor, kSet, kSetBlock: a name, a tuple of names, or ns.attribute
  ExprPtr value;      // kOutput, kSet; kFor: what is iterated; kCallBlock: the call; kFilterBlock,
                      // kSetBlock: filters over a null input
  ExprPtr condition;  // kFor: the if of the loop
  std::vector<std::pair<ExprPtr, Body>> branches;                       // kIf
  std::vector<std::pair<std::string, ExprPtr>> bindings;                // kWith
  std::vector<MacroParameter> parameters;                               // kMacro, kCallBlock
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  // kMacro, kCallBlock
  Body body;
  Body otherwise;  // else of kFor and kIf
};

// Refuses names of filters and tests that do not exist, where Jinja does: not within an if
// statement or a conditional expression, whose branches may never run (chat templates probe for
// filters that way).
void check_names(const Body& body, bool soft);

// Parses a whole template. Errors are TemplateError of kind syntax.
Body parse(std::string_view source, const TemplateLimits& limits);

}  // namespace sextant::jinja
