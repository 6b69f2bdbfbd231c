// FieldReader (tokenizer_json.h).
#include "text/tokenizer_json.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "io/quote.h"

namespace sextant {

JsonPlace JsonPlace::field(std::string_view name) const {
  return {file, path.empty() ? std::string(name) : fmt::format("{}.{}", path, name)};
}

JsonPlace JsonPlace::item(size_t i) const { return {file, fmt::format("{}[{}]", path, i)}; }

FieldReader::FieldReader(const JsonValue& object, JsonPlace place)
    : object_(object), place_(std::move(place)) {
  if (!object.is_object())
    status_ = fail_in(place_, Code::kInput, "expected an object, found {}", object.kind_name());
}

const JsonValue* FieldReader::take(std::string_view name) {
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
  return object_.is_object() ? object_.find(name) : nullptr;
}

void FieldReader::wrong(std::string_view name, std::string_view expected, const JsonValue* found) {
  if (!status_) return;
  status_ = fail_in(place_.field(name), Code::kInput, "expected {}, found {}", expected,
                    found == nullptr ? "nothing" : found->kind_name());
}

std::string FieldReader::text(std::string_view name) {
  const JsonValue* value = take(name);
  if (value != nullptr && value->is_string()) return value->as_string();
  wrong(name, "a string", value);
  return {};
}

std::string FieldReader::text_or(std::string_view name, std::string_view missing) {
  const JsonValue* value = take(name);
  if (value == nullptr || value->is_null()) return std::string(missing);
  if (value->is_string()) return value->as_string();
  wrong(name, "a string or null", value);
  return {};
}

bool FieldReader::flag(std::string_view name) {
  const JsonValue* value = take(name);
  if (value != nullptr && value->is_bool()) return value->as_bool();
  wrong(name, "true or false", value);
  return false;
}

bool FieldReader::flag_or(std::string_view name, bool missing) {
  const JsonValue* value = take(name);
  if (value == nullptr || value->is_null()) return missing;
  if (value->is_bool()) return value->as_bool();
  wrong(name, "true or false", value);
  return missing;
}

int64_t FieldReader::integer(std::string_view name, int64_t low, int64_t high) {
  const JsonValue* value = take(name);
  if (value != nullptr && value->is_int() && value->as_int() >= low && value->as_int() <= high)
    return value->as_int();
  if (status_ && value != nullptr && value->is_int())
    status_ = fail_in(place_.field(name), Code::kInput, "expected {} to {}, found {}", low, high,
                      value->as_int());
  else
    wrong(name, "a whole number", value);
  return low;
}

int64_t FieldReader::integer_or(std::string_view name, int64_t low, int64_t high, int64_t missing) {
  const JsonValue* value = object_.is_object() ? object_.find(name) : nullptr;
  if (value == nullptr || value->is_null()) {
    take(name);
    return missing;
  }
  return integer(name, low, high);
}

const JsonValue* FieldReader::list(std::string_view name) {
  const JsonValue* value = take(name);
  if (value != nullptr && value->is_array()) return value;
  wrong(name, "a list", value);
  return nullptr;
}

const JsonValue* FieldReader::object(std::string_view name) {
  const JsonValue* value = take(name);
  if (value != nullptr && value->is_object()) return value;
  wrong(name, "an object", value);
  return nullptr;
}

const JsonValue* FieldReader::any(std::string_view name) {
  const JsonValue* value = take(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void FieldReader::ignore(std::string_view name) { take(name); }

Status FieldReader::finish() {
  SX_TRY(status_);
  for (const auto& [key, value] : object_.members())
    if (std::find(known_.begin(), known_.end(), key) == known_.end())
      return fail_in(place_, Code::kUnsupported,
                     "expected only {}, found the unknown field {}; a newer version may read it",
                     fmt::join(known_, ", "), quote_name(key));
  return {};
}

Result<std::string> part_type(const JsonValue& part, const JsonPlace& place) {
  const JsonValue* type = part.find("type");
  if (type == nullptr || !type->is_string())
    return fail_in(place, Code::kInput, "expected an object with a type, found {}",
                   part.is_object() ? "none in it" : part.kind_name());
  return type->as_string();
}

}  // namespace sextant
