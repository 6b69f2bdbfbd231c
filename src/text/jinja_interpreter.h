// Runs a parsed template. Scopes follow Jinja: a for loop, macro, call, filter, with and set block
// has its own; if has none. What a macro sees besides its parameters is the scope it was defined
// in, as it is when the macro runs.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/jinja_ast.h"

namespace sextant::jinja {

struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro holds it: it lives until the end
  std::unordered_map<std::string, Value> names;
};

class Interpreter {
 public:
  Interpreter(const TemplateLimits& limits, int64_t now_s) : budget_(limits), now_s_(now_s) {}

  std::string run(const Body& body, const Value& variables);

  Budget& budget() { return budget_; }
  int64_t now_s() const { return now_s_; }
  // x.name: the method or attribute first, then the item (environment.getattr).
  Value get_attribute(const Value& object, const std::string& name);
  // x["name"]: the item first, then the attribute (environment.getitem).
  Value get_subscript(const Value& object, const Value& key);
  Value call(const Value& callee, const Arguments& arguments);
  std::string render_in(Scope* scope, const Body& body);  // a body's output by itself
  Value evaluate(const Expr& e);
  Scope* scope() { return scope_; }

  // Runs f with `scope` as the current one.
  template <class F>
  auto with_scope(Scope* scope, F&& f) {
    Scope* saved = scope_;
    scope_ = scope;
    struct Restore {
      Interpreter& self;
      Scope* scope;
      ~Restore() { self.scope_ = scope; }
    } restore{*this, saved};
    return f();
  }
  // A new scope under `parent` that goes away again unless a macro captured it.
  template <class F>
  auto in_new_scope(Scope* parent, F&& f) {
    auto owned = std::make_unique<Scope>();
    owned->parent = parent;
    struct Keep {
      Interpreter& self;
      std::unique_ptr<Scope>& scope;
      ~Keep() {
        if (scope->captured) self.kept_.push_back(std::move(scope));
      }
    } keep{*this, owned};
    return with_scope(owned.get(), [&] { return f(*owned); });
  }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Flow execute(const Body& body);
  Flow execute(const Node& node);
  Flow execute_for(const Node& node);
  Flow execute_if(const Node& node);
  void execute_set(const Node& node);
  void execute_call_block(const Node& node);
  void assign(const Expr& target, const Value& value);
  void write(const std::string& text);
  Value define_macro(const Node& node);

  Value lookup(const std::string& name) const;
  Value evaluate_call(const Expr& e);
  Value evaluate_filter(const Expr& e, const Value& input);
  Value evaluate_compare(const Expr& e);
  Value evaluate_dict(const Expr& e);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& operands, size_t first);
  Arguments evaluate_arguments(const Expr& e);
  Value apply_filter_chain(const Expr& chain, const Value& input);

  Budget budget_;
  int64_t now_s_;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  std::deque<std::unique_ptr<Scope>> kept_;
};

// loop.index and its like (jinja_globals.cpp).
Value loop_attribute(const Value& object, const std::string& name);

// range, dict, namespace, raise_exception, strftime_now, cycler, joiner.
void add_globals(Scope& scope);

}  // namespace sextant::jinja
