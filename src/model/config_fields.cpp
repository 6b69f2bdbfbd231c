// Implements config_fields.h.
#include "model/config_fields.h"

#include <cmath>

#include "io/ordered_json.h"

namespace sextant {

std::string shown(const JsonValue& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.to_json().dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

Where ConfigFields::where(std::string_view name) const {
  Where where;
  where.file = file_;
  where.field = prefix_ + std::string(name);
  return where;
}

const JsonValue* ConfigFields::find(std::string_view name) const {
  const JsonValue* value = object_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigFields::is_null(std::string_view name) const {
  const JsonValue* value = object_.find(name);
  return value != nullptr && value->is_null();
}

Result<int64_t> ConfigFields::integer(std::string_view name, int64_t low, int64_t high,
                                      std::optional<int64_t> fallback) const {
  const JsonValue* value = find(name);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail_at(where(name), Code::kInput,
                   "{}: field {}{} is missing; expected a whole number from {} to {}", file_,
                   prefix_, name, low, high);
  }
  if (!value->is_int() || value->as_int() < low || value->as_int() > high)
    return fail_at(where(name), Code::kInput,
                   "{}: field {}{} is {}; expected a whole number from {} to {}", file_, prefix_,
                   name, shown(*value), low, high);
  return value->as_int();
}

Result<double> ConfigFields::number(std::string_view name, double low, double high,
                                    std::optional<double> fallback) const {
  const JsonValue* value = find(name);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail_at(where(name), Code::kInput,
                   "{}: field {}{} is missing; expected a number from {} to {}", file_, prefix_,
                   name, low, high);
  }
  const double x = value->is_number() ? value->as_double() : NAN;
  if (!(x >= low && x <= high))
    return fail_at(where(name), Code::kInput,
                   "{}: field {}{} is {}; expected a number from {} to {}", file_, prefix_, name,
                   shown(*value), low, high);
  return x;
}

Result<bool> ConfigFields::boolean(std::string_view name, bool fallback) const {
  const JsonValue* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool())
    return fail_at(where(name), Code::kInput, "{}: field {}{} is {}; expected true or false", file_,
                   prefix_, name, shown(*value));
  return value->as_bool();
}

Result<std::string> ConfigFields::text(std::string_view name, std::string_view fallback) const {
  const JsonValue* value = find(name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string())
    return fail_at(where(name), Code::kInput, "{}: field {}{} is {}; expected a string", file_,
                   prefix_, name, shown(*value));
  return value->as_string();
}

Result<std::vector<std::string>> ConfigFields::texts(std::string_view name) const {
  std::vector<std::string> out;
  const JsonValue* value = find(name);
  if (value == nullptr) return out;
  bool good = value->is_array();
  if (good)
    for (const JsonValue& item : value->array()) {
      good = good && item.is_string();
      if (good) out.push_back(item.as_string());
    }
  if (!good)
    return fail_at(where(name), Code::kInput, "{}: field {}{} is {}; expected a list of strings",
                   file_, prefix_, name, shown(*value));
  return out;
}

Result<std::vector<int64_t>> ConfigFields::integers(std::string_view name, int64_t low,
                                                    int64_t high) const {
  std::vector<int64_t> out;
  const JsonValue* value = find(name);
  if (value == nullptr) return out;
  const auto take = [&](const JsonValue& item) {
    if (!item.is_int() || item.as_int() < low || item.as_int() > high) return false;
    out.push_back(item.as_int());
    return true;
  };
  bool good = true;
  if (value->is_array())
    for (const JsonValue& item : value->array()) good = good && take(item);
  else
    good = take(*value);
  if (!good)
    return fail_at(where(name), Code::kInput,
                   "{}: field {}{} is {}; expected a whole number from {} to {}, or a list of them",
                   file_, prefix_, name, shown(*value), low, high);
  return out;
}

}  // namespace sextant
