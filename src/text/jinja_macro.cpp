// Macros and the bodies of call blocks: binding of arguments with Python's rules.
#include <algorithm>

#include "text/jinja_interpreter.h"

namespace sextant::jinja {
namespace {

// A macro, or the body of a call block.
struct Macro final : Callable {
  const Node* node = nullptr;
  Scope* defined_in = nullptr;
  std::string name;

  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return interpreter.in_new_scope(defined_in, [&](Scope& scope) {
      bind(interpreter, scope, arguments);
      return Value::string(interpreter.render_in(&scope, node->body));
    });
  }

 private:
  void bind(Interpreter& interpreter, Scope& scope, const Arguments& arguments) const {
    const auto& parameters = node->parameters;
    std::vector<std::pair<std::string, Value>> left = arguments.named;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string& parameter = parameters[i].name;
      const auto named = std::find_if(left.begin(), left.end(),
                                      [&](const auto& x) { return x.first == parameter; });
      if (i < arguments.positional.size()) {
        if (named != left.end())
          raise(ErrorKind::kType,
                "macro '" + name + "' got multiple values for argument '" + parameter + "'");
        scope.names[parameter] = arguments.positional[i];
      } else if (named != left.end()) {
        scope.names[parameter] = named->second;
        left.erase(named);
      } else if (parameters[i].fallback != nullptr) {
        scope.names[parameter] = interpreter.evaluate(*parameters[i].fallback);
      } else {
        scope.names[parameter] = Value::undefined("parameter '" + parameter + "' was not provided");
      }
    }
    const auto caller =
        std::find_if(left.begin(), left.end(), [](const auto& x) { return x.first == "caller"; });
    if (node->uses_caller) {
      scope.names["caller"] =
          caller != left.end() ? caller->second : Value::undefined("No caller defined");
      if (caller != left.end()) left.erase(caller);
    }
    if (node->uses_kwargs) {
      auto dict = std::make_shared<Dict>();
      for (auto& [key, value] : left) dict->items.emplace_back(Value::string(key), value);
      scope.names["kwargs"] = Value::object(Kind::kDict, dict);
    } else if (!left.empty()) {
      raise(ErrorKind::kType,
            "macro '" + name + "' takes no keyword argument '" + left.front().first + "'");
    }
    const size_t n = parameters.size();
    if (node->uses_varargs) {
      std::vector<Value> rest;
      if (arguments.positional.size() > n)
        rest.assign(arguments.positional.begin() + static_cast<int64_t>(n),
                    arguments.positional.end());
      scope.names["varargs"] = Value::tuple(std::move(rest));
    } else if (arguments.positional.size() > n) {
      raise(ErrorKind::kType,
            "macro '" + name + "' takes not more than " + std::to_string(n) + " argument(s)");
    }
  }
};

}  // namespace

Value Interpreter::define_macro(const Node& node) {
  auto macro = std::make_shared<Macro>();
  macro->node = &node;
  macro->defined_in = scope_;
  macro->name = node.type == NodeType::kMacro ? node.text : "caller";
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  return Value::object<Callable>(Kind::kCallable, macro);
}

}  // namespace sextant::jinja
