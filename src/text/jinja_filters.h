// The two halves of the filter table, for find_filter.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/jinja_interpreter.h"

namespace sextant::jinja {

struct FilterRow {
  std::string_view name;
  Filter filter;
};
std::span<const FilterRow> sequence_filters();  // jinja_filters.cpp
std::span<const FilterRow> text_filters();      // jinja_filters_text.cpp: text and numbers

// str(value) for a filter that works on text; undefined is "".
inline std::string text_of(Interpreter& in, const Value& v) { return to_text(v, in.budget()); }

}  // namespace sextant::jinja

#define SX_FILTER(expression)                                        \
  [](Interpreter& in, const Value& v, const Arguments& a) -> Value { \
    (void)in;                                                        \
    (void)a;                                                         \
    return expression;                                               \
  }
