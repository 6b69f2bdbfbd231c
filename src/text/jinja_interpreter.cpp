// The evaluation of expressions and statements (jinja_interpreter.h).
#include "text/jinja_interpreter.h"

#include <algorithm>

namespace sextant::jinja {
std::string Interpreter::run(const Body& body, const Value& variables) {
  Scope globals;
  add_globals(globals);
  for (const auto& [key, value] : variables.dict().items) globals.names[key.str()] = value;
  Scope top;
  top.parent = &globals;
  std::string out = render_in(&top, body);
  kept_.clear();
  return out;
}

std::string Interpreter::render_in(Scope* scope, const Body& body) {
  const DepthGuard guard(budget_);
  std::string text;
  std::string* saved = out_;
  out_ = &text;
  struct Restore {
    Interpreter& self;
    std::string* out;
    ~Restore() { self.out_ = out; }
  } restore{*this, saved};
  with_scope(scope, [&] { return execute(body); });
  return text;
}

void Interpreter::write(const std::string& text) {
  budget_.bytes(static_cast<int64_t>(text.size()));
  if (static_cast<int64_t>(out_->size() + text.size()) > budget_.limits().max_output_bytes) {
    budget_.bytes(static_cast<int64_t>(out_->size() + text.size()));
  }
  *out_ += text;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const DepthGuard guard(budget_);
  for (const NodePtr& node : body) {
    budget_.step();
    try {
      const Flow flow = execute(*node);
      if (flow != Flow::kNext) return flow;
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = node->line;
      throw;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Node& node) {
  switch (node.type) {
    case NodeType::kData: write(node.text); break;
    case NodeType::kOutput: write(to_text(evaluate(*node.value), budget_)); break;
    case NodeType::kFor: return execute_for(node);
    case NodeType::kIf: return execute_if(node);
    case NodeType::kSet:
    case NodeType::kSetBlock: execute_set(node); break;
    case NodeType::kMacro: scope_->names[node.text] = define_macro(node); break;
    case NodeType::kCallBlock: execute_call_block(node); break;
    case NodeType::kFilterBlock: {
      const std::string text =
          in_new_scope(scope_, [&](Scope& scope) { return render_in(&scope, node.body); });
      write(to_text(apply_filter_chain(*node.value, Value::string(text)), budget_));
      break;
    }
    case NodeType::kWith: {
      std::vector<std::pair<std::string, Value>> values;  // all of them see the outer scope
      for (const auto& [name, value] : node.bindings) values.emplace_back(name, evaluate(*value));
      return in_new_scope(scope_, [&](Scope& scope) {
        for (auto& [name, value] : values) scope.names[name] = std::move(value);
        return execute(node.body);
      });
    }
    case NodeType::kGeneration:
      return in_new_scope(scope_, [&](Scope& scope) {
        write(render_in(&scope, node.body));
        return Flow::kNext;
      });
    case NodeType::kBreak: return Flow::kBreak;
    case NodeType::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_for(const Node& node) {
  const Value iterable = evaluate(*node.value);
  std::vector<Value> items = iterate(iterable, budget_);
  if (node.condition != nullptr) {
    std::vector<Value> chosen;
    for (const Value& item : items) {
      budget_.step();
      const bool keep = in_new_scope(scope_, [&](Scope&) {
        assign(*node.target, item);
        return truthy(evaluate(*node.condition));
      });
      if (keep) chosen.push_back(item);
    }
    items = std::move(chosen);
  }
  if (items.empty()) return in_new_scope(scope_, [&](Scope&) { return execute(node.otherwise); });
  auto loop = std::make_shared<Loop>();
  loop->items = &items;
  struct Detach {
    Loop& loop;
    ~Detach() { loop.items = nullptr; }
  } detach{*loop};
  const Value loop_value = Value::object(Kind::kLoop, loop);
  for (size_t i = 0; i < items.size(); ++i) {
    budget_.step();
    loop->index0 = static_cast<int64_t>(i);
    const Flow flow = in_new_scope(scope_, [&](Scope& scope) {
      scope.names["loop"] = loop_value;
      assign(*node.target, items[i]);
      return execute(node.body);
    });
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Node& node) {
  for (const auto& [condition, body] : node.branches) {
    if (truthy(evaluate(*condition))) return execute(body);
  }
  return execute(node.otherwise);
}

void Interpreter::execute_set(const Node& node) {
  if (node.type == NodeType::kSet) {
    assign(*node.target, evaluate(*node.value));
    return;
  }
  Value text = Value::string(
      in_new_scope(scope_, [&](Scope& scope) { return render_in(&scope, node.body); }));
  if (node.value != nullptr) text = apply_filter_chain(*node.value, text);
  assign(*node.target, text);
}

void Interpreter::execute_call_block(const Node& node) {
  Arguments arguments = evaluate_arguments(*node.value);
  arguments.named.emplace_back("caller", define_macro(node));
  const Value callee = evaluate(*node.value->operands[0]);
  write(to_text(call(callee, arguments), budget_));
}

void Interpreter::assign(const Expr& target, const Value& value) {
  if (target.type == ExprType::kName) {
    scope_->names[target.name] = value;
    return;
  }
  if (target.type == ExprType::kGetAttr) {
    const Value object = lookup(target.operands[0]->name);
    if (!object.is(Kind::kNamespace))
      raise(ErrorKind::kRuntime, "cannot assign attribute on non-namespace object");
    object.get<Namespace>().members.set(Value::string(target.name), value);
    return;
  }
  require_defined(value);
  const std::vector<Value> parts = iterate(value, budget_);
  if (parts.size() != target.operands.size()) {
    raise(ErrorKind::kValue,
          (parts.size() > target.operands.size() ? "too many values to unpack (expected "
                                                 : "not enough values to unpack (expected ") +
              std::to_string(target.operands.size()) + ")");
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.operands[i], parts[i]);
}

Value Interpreter::lookup(const std::string& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto it = scope->names.find(name);
    if (it != scope->names.end()) return it->second;
  }
  return Value::undefined("'" + name + "' is undefined");
}

Value Interpreter::get_attribute(const Value& object, const std::string& name) {
  require_defined(object);
  budget_.step();
  if (object.is(Kind::kNamespace)) {
    const Value* found = object.get<Namespace>().members.find(std::string_view(name));
    return found != nullptr
               ? *found
               : Value::undefined("'Namespace object' has no attribute '" + name + "'");
  }
  if (object.is(Kind::kLoop)) {
    if (object.get<Loop>().items == nullptr)
      raise(ErrorKind::kUndefined, "the loop of 'loop." + name + "' has ended");
    return loop_attribute(object, name);
  }
  if (name.rfind("__", 0) == 0 && !object.is(Kind::kDict)) {
    return Value::undefined(
        "access to attribute '" + name + "' of '" + type_name(object) + "' object is unsafe.",
        true);
  }
  Value method;
  if (find_method(object, name, &method)) return method;
  return get_item(object, Value::string(name), budget_);
}

Value Interpreter::get_subscript(const Value& object, const Value& key) {
  if (object.is(Kind::kNamespace) || object.is(Kind::kLoop)) {
    return key.is_string() ? get_attribute(object, key.str()) : get_item(object, key, budget_);
  }
  Value item = get_item(object, key, budget_);
  Value method;
  if (item.is(Kind::kUndefined) && key.is_string() && find_method(object, key.str(), &method))
    return method;
  return item;
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  budget_.step();
  const DepthGuard guard(budget_);
  if (!callee.is(Kind::kCallable))
    raise(ErrorKind::kType, "'" + type_name(callee) + "' object is not callable");
  return callee.get<Callable>().call(*this, arguments);
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExprPtr>& operands, size_t first) {
  std::vector<Value> values;
  for (size_t i = first; i < operands.size(); ++i) values.push_back(evaluate(*operands[i]));
  return values;
}

Arguments Interpreter::evaluate_arguments(const Expr& e) {
  Arguments arguments;
  arguments.positional = evaluate_all(e.operands, 1);
  for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value));
  if (e.star != nullptr) {
    for (Value& v : iterate(evaluate(*e.star), budget_))
      arguments.positional.push_back(std::move(v));
  }
  if (e.double_star != nullptr) {
    const Value dict = evaluate(*e.double_star);
    if (!dict.is(Kind::kDict))
      raise(ErrorKind::kType, "argument after ** must be a mapping, not " + type_name(dict));
    for (const auto& [key, value] : dict.dict().items) {
      if (!key.is_string()) raise(ErrorKind::kType, "keywords must be strings");
      arguments.named.emplace_back(key.str(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& e) {
  const Value callee = evaluate(*e.operands[0]);
  require_defined(callee);
  return call(callee, evaluate_arguments(e));
}

Value Interpreter::evaluate_filter(const Expr& e, const Value& input) {
  if (e.filter == nullptr) raise(ErrorKind::kRuntime, "No filter named '" + e.name + "'.");
  return e.filter(*this, input, evaluate_arguments(e));
}

// A chain whose innermost input is filled in: {% filter a | b %} and {% set x | a | b %}.
Value Interpreter::apply_filter_chain(const Expr& chain, const Value& input) {
  const ExprPtr& inner = chain.operands[0];
  return evaluate_filter(chain, inner == nullptr ? input : apply_filter_chain(*inner, input));
}

Value Interpreter::evaluate_compare(const Expr& e) {
  Value left = evaluate(*e.operands[0]);
  for (size_t i = 0; i < e.compare_ops.size(); ++i) {
    Value right = evaluate(*e.operands[i + 1]);
    const std::string& op = e.compare_ops[i];
    bool holds = false;
    if (op == "==")
      holds = equal(left, right);
    else if (op == "!=")
      holds = !equal(left, right);
    else if (op == "in")
      holds = contains(right, left, budget_);
    else if (op == "not in")
      holds = !contains(right, left, budget_);
    else if (op == "<")
      holds = less(left, right);
    else if (op == ">")
      holds = less(right, left);
    else if (op == "<=")
      holds = less(left, right) || equal(left, right);
    else
      holds = less(right, left) || equal(left, right);
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_dict(const Expr& e) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < e.operands.size(); i += 2) {
    budget_.step(1 + static_cast<int64_t>(dict->items.size() / 8));
    const Value key = evaluate(*e.operands[i]);
    dict->set(key, evaluate(*e.operands[i + 1]));
  }
  return Value::object(Kind::kDict, std::move(dict));
}

Value Interpreter::evaluate(const Expr& e) {
  budget_.step();
  const DepthGuard guard(budget_);
  const auto operand = [&](size_t i) { return evaluate(*e.operands[i]); };
  const auto bound = [&](size_t i) {
    return e.operands[i] != nullptr ? evaluate(*e.operands[i]) : Value::none();
  };
  switch (e.type) {
    case ExprType::kLiteral: return e.literal;
    case ExprType::kName: return lookup(e.name);
    case ExprType::kList: return Value::list(evaluate_all(e.operands, 0));
    case ExprType::kTuple: return Value::tuple(evaluate_all(e.operands, 0));
    case ExprType::kDict: return evaluate_dict(e);
    case ExprType::kGetAttr: return get_attribute(operand(0), e.name);
    case ExprType::kGetItem: {
      const Value object = operand(0);
      return get_subscript(object, operand(1));
    }
    case ExprType::kSlice: {
      const Value object = operand(0);
      return slice(object, bound(1), bound(2), bound(3), budget_);
    }
    case ExprType::kCall: return evaluate_call(e);
    case ExprType::kFilter: return evaluate_filter(e, operand(0));
    case ExprType::kTest: return Value::boolean(e.test(*this, operand(0), evaluate_arguments(e)));
    case ExprType::kNot: return Value::boolean(!truthy(operand(0)));
    case ExprType::kNegate: return negate(operand(0));
    case ExprType::kPlus: {
      Value v = operand(0);
      if (!v.is_number()) {
        require_defined(v);
        raise(ErrorKind::kType, "bad operand type for unary +: '" + type_name(v) + "'");
      }
      return v.is(Kind::kBool) ? Value::integer(v.as_int()) : v;
    }
    case ExprType::kBinary: {
      const Value a = operand(0);
      const Value b = operand(1);
      return e.op == '+' ? add(a, b, budget_) : arithmetic(e.op, a, b, budget_);
    }
    case ExprType::kConcat: {
      std::string text;
      for (const ExprPtr& part : e.operands) {
        text += to_text(evaluate(*part), budget_);
        budget_.bytes(static_cast<int64_t>(text.size()));
      }
      return Value::string(std::move(text));
    }
    case ExprType::kCompare: return evaluate_compare(e);
    case ExprType::kAnd: {
      Value left = operand(0);
      return truthy(left) ? operand(1) : left;
    }
    case ExprType::kOr: {
      Value left = operand(0);
      return truthy(left) ? left : operand(1);
    }
    case ExprType::kConditional:
      if (truthy(operand(1))) return operand(0);
      if (e.operands[2] != nullptr) return operand(2);
      return Value::undefined("the inline if-expression on line " + std::to_string(e.line) +
                              " evaluated to false and no else section was defined.");
  }
  return {};
}

}  // namespace sextant::jinja
