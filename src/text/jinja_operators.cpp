// Arithmetic, indexing and slicing with Python's rules: floor division, modulus with the divisor's
// sign, true division to float, negative indices, sequences of code points. Integers that leave 128
// bits are a limit error, never a wrap.
#include <cmath>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace sextant::jinja {
namespace {

[[noreturn]] void unsupported(const char* op, const Value& a, const Value& b) {
  raise(ErrorKind::kType, std::string("unsupported operand type(s) for ") + op + ": '" +
                              type_name(a) + "' and '" + type_name(b) + "'");
}
Int checked(bool overflow, Int result) {
  if (overflow) raise(ErrorKind::kLimit, "integer beyond 128 bits");
  return result;
}
Int add_int(Int a, Int b) {
  Int r = 0;
  const bool overflow = __builtin_add_overflow(a, b, &r);
  return checked(overflow, r);
}
Int mul_int(Int a, Int b) {
  Int r = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &r);
  return checked(overflow, r);
}
Int floor_div(Int a, Int b) {
  const Int q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

Value repeat(const Value& sequence, Int times, Budget& budget) {
  const Int n = times < 0 ? 0 : times;
  if (n > (int64_t{1} << 40)) raise(ErrorKind::kLimit, "template budget exceeded: repetition");
  const auto count = static_cast<int64_t>(n);
  if (sequence.is_string()) {
    const auto size = static_cast<int64_t>(sequence.str().size());
    if (size > 0 && count > budget.limits().max_output_bytes) budget.bytes(count);
    budget.bytes(size * count);
    std::string out;
    out.reserve(static_cast<size_t>(size * count));
    for (int64_t i = 0; size > 0 && i < count; ++i) out += sequence.str();
    return Value::string(std::move(out), sequence.is_markup());
  }
  const auto size = static_cast<int64_t>(sequence.items().size());
  if (size > 0 && count > budget.limits().max_steps) budget.step(count);
  budget.step(size * count);
  std::vector<Value> out;
  for (int64_t i = 0; size > 0 && i < count; ++i) {
    out.insert(out.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.is(Kind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

Value power(const Value& a, const Value& b, Budget& budget) {
  if (a.is_integral() && b.is_integral() && b.as_int() >= 0) {
    Int result = 1;
    Int base = a.as_int();
    for (Int e = b.as_int(); e > 0; e >>= 1) {
      budget.step();
      if ((e & 1) != 0) result = mul_int(result, base);
      if (e > 1) base = mul_int(base, base);
    }
    return Value::integer(result);
  }
  if (a.as_double() == 0.0 && b.as_double() < 0) {
    raise(ErrorKind::kArithmetic, "0.0 cannot be raised to a negative power");
  }
  return Value::real(std::pow(a.as_double(), b.as_double()));
}

Value numeric(char op, const Value& a, const Value& b, Budget& budget) {
  const bool integral = a.is_integral() && b.is_integral();
  if (op == 'p') return power(a, b, budget);
  if (op == '-') {
    if (!integral) return Value::real(a.as_double() - b.as_double());
    Int r = 0;
    const bool overflow = __builtin_sub_overflow(a.as_int(), b.as_int(), &r);
    return Value::integer(checked(overflow, r));
  }
  if (op == '*') {
    if (!integral) return Value::real(a.as_double() * b.as_double());
    return Value::integer(mul_int(a.as_int(), b.as_int()));
  }
  if (b.as_double() == 0.0) {
    raise(ErrorKind::kArithmetic,
          integral && op == '/' ? "division by zero" : "division or modulo by zero");
  }
  if (op == '/') return Value::real(a.as_double() / b.as_double());
  if (integral) {
    const Int q = floor_div(a.as_int(), b.as_int());
    return Value::integer(op == 'f' ? q : a.as_int() - q * b.as_int());
  }
  const double x = a.as_double();
  const double y = b.as_double();
  double rest = std::fmod(x, y);
  if (rest != 0.0 && (rest < 0) != (y < 0)) rest += y;
  return Value::real(op == '%' ? rest : std::floor(std::round((x - rest) / y * 1e9) / 1e9));
}

// A slice bound as Python clamps it.
int64_t clamp_index(const Value& bound, int64_t fallback, int64_t low, int64_t high, int64_t size) {
  if (bound.is(Kind::kNone)) return fallback;
  if (!bound.is_integral()) {
    require_defined(bound);
    raise(ErrorKind::kType, "slice indices must be integers or None");
  }
  Int i = bound.as_int();
  if (i < 0) i += size;
  if (i < low) return low;
  if (i > high) return high;
  return static_cast<int64_t>(i);
}

Value missing(const Value& object, const Value& key, Budget& budget) {
  const std::string name = key.is_string() ? "'" + key.str() + "'" : repr(key, budget);
  return Value::undefined("'" + type_name(object) + " object' has no attribute " + name);
}

}  // namespace

Value add(const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return Value::integer(add_int(a.as_int(), b.as_int()));
    return Value::real(a.as_double() + b.as_double());
  }
  if (a.is_string() && b.is_string()) {
    budget.bytes(static_cast<int64_t>(a.str().size() + b.str().size()));
    if (a.is_markup() == b.is_markup()) return Value::string(a.str() + b.str(), a.is_markup());
    return a.is_markup() ? Value::string(a.str() + escape_html(b.str()), true)
                         : Value::string(escape_html(a.str()) + b.str(), true);
  }
  if (a.kind() == b.kind() && a.is_sequence_type()) {
    budget.step(static_cast<int64_t>(a.items().size() + b.items().size()));
    std::vector<Value> out = a.items();
    out.insert(out.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
  }
  if (a.is_string()) {
    raise(ErrorKind::kType, "can only concatenate str (not \"" + type_name(b) + "\") to str");
  }
  unsupported("+", a, b);
}

Value arithmetic(char op, const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  budget.step();
  if (op == '%' && a.is_string()) return Value::string(percent_format(a.str(), b, budget));
  require_defined(b);
  if (a.is_number() && b.is_number()) return numeric(op, a, b, budget);
  if (op == '*') {
    if ((a.is_string() || a.is_sequence_type()) && b.is_integral())
      return repeat(a, b.as_int(), budget);
    if ((b.is_string() || b.is_sequence_type()) && a.is_integral())
      return repeat(b, a.as_int(), budget);
  }
  unsupported(op == 'f'   ? "//"
              : op == 'p' ? "** or pow()"
              : op == '-' ? "-"
              : op == '*' ? "*"
              : op == '/' ? "/"
                          : "%",
              a, b);
}

Value negate(const Value& v) {
  require_defined(v);
  if (v.is_integral()) return Value::integer(-v.as_int());
  if (v.is(Kind::kFloat)) return Value::real(-v.as_double());
  raise(ErrorKind::kType, "bad operand type for unary -: '" + type_name(v) + "'");
}

Value get_item(const Value& object, const Value& key, Budget& budget) {
  require_defined(object);
  budget.step();
  if (object.is(Kind::kDict)) {
    budget.step(static_cast<int64_t>(object.dict().items.size() / 16));
    const Value* found = object.dict().find(key);
    return found != nullptr ? *found : missing(object, key, budget);
  }
  if (key.is_integral()) {
    Int i = key.as_int();
    if (object.is_sequence_type()) {
      const auto& items = object.items();
      if (i < 0) i += static_cast<Int>(items.size());
      if (i >= 0 && i < static_cast<Int>(items.size())) return items[static_cast<size_t>(i)];
    } else if (object.is_string()) {
      const std::u32string points = decode_utf8(object.str());
      budget.step(static_cast<int64_t>(points.size() / 32));
      if (i < 0) i += static_cast<Int>(points.size());
      if (i >= 0 && i < static_cast<Int>(points.size())) {
        return Value::string(encode_utf8({&points[static_cast<size_t>(i)], 1}));
      }
    } else if (object.is(Kind::kRange)) {
      const auto& r = object.get<Range>();
      if (i < 0) i += r.size();
      if (i >= 0 && i < r.size()) return Value::integer(r.start + i * r.step);
    }
    return missing(object, key, budget);
  }
  return missing(object, key, budget);
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget) {
  require_defined(object);
  Value source = object;
  if (object.is(Kind::kRange)) source = Value::list(iterate(object, budget));
  if (!source.is_string() && !source.is_sequence_type()) {
    return Value::undefined("'" + type_name(object) + " object' cannot be sliced");
  }
  const std::u32string points = source.is_string() ? decode_utf8(source.str()) : std::u32string();
  const auto size =
      static_cast<int64_t>(source.is_string() ? points.size() : source.items().size());
  Int by = 1;
  if (!step.is(Kind::kNone)) {
    if (!step.is_integral()) raise(ErrorKind::kType, "slice indices must be integers or None");
    by = step.as_int();
    if (by == 0) raise(ErrorKind::kValue, "slice step cannot be zero");
  }
  const bool forward = by > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  const int64_t begin = clamp_index(start, forward ? low : high, low, high, size);
  const int64_t end = clamp_index(stop, forward ? high : low, low, high, size);
  budget.step(1 + size / 16);
  std::u32string text;
  std::vector<Value> items;
  for (Int i = begin; forward ? i < end : i > end; i += by) {
    if (source.is_string()) {
      text.push_back(points[static_cast<size_t>(i)]);
    } else {
      items.push_back(source.items()[static_cast<size_t>(i)]);
    }
  }
  if (source.is_string()) return Value::string(encode_utf8(text), source.is_markup());
  return source.is(Kind::kTuple) ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace sextant::jinja
