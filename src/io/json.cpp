#include "io/json.h"

#include <cmath>
#include <new>

#include "base/check.h"
#include "io/file_kind.h"
#include "io/json_dom.h"
#include "io/mapped_file.h"
#include "io/ordered_json.h"
#include "io/quote.h"

namespace sextant {

// simdjson's DOM to a JsonValue. Recursion is as deep as the parser allowed, at most kMaxJsonDepth.
class JsonBuilder {
 public:
  explicit JsonBuilder(std::string_view name) : name_(name) {}

  Status build(const simdjson::dom::element& element, JsonValue& out) {
    using Type = simdjson::dom::element_type;
    switch (element.type()) {
      case Type::NULL_VALUE: break;
      case Type::BOOL: out.data_ = element.get_bool().value_unsafe(); break;
      case Type::INT64: out.data_ = element.get_int64().value_unsafe(); break;
      case Type::UINT64: out.data_ = element.get_uint64().value_unsafe(); break;
      case Type::DOUBLE: out.data_ = element.get_double().value_unsafe(); break;
      case Type::STRING: out.data_ = std::string(element.get_string().value_unsafe()); break;
      case Type::ARRAY: return build_array(element.get_array().value_unsafe(), out);
      case Type::OBJECT: return build_object(element.get_object().value_unsafe(), out);
    }
    return {};
  }

 private:
  Status build_array(const simdjson::dom::array& array, JsonValue& out) {
    std::vector<JsonValue>& items = out.data_.emplace<std::vector<JsonValue>>();
    items.reserve(array.size());
    for (const auto element : array) SX_TRY(build(element, items.emplace_back()));
    return {};
  }

  Status build_object(const simdjson::dom::object& object, JsonValue& out) {
    std::vector<JsonMember>& members = out.data_.emplace<std::vector<JsonMember>>();
    members.reserve(object.size());
    for (const auto [key, value] : object) {
      members.emplace_back(std::string(key), JsonValue());
      SX_TRY(build(value, members.back().second));
    }
    keys_.clear();
    for (const JsonMember& member : members) keys_.push_back(member.first);
    if (const auto idx = find_duplicate(keys_))
      return fail_at({std::string(name_), {}, members[*idx].first, {}}, Code::kInput,
                     "{}: expected every key of an object once, found {} twice", escape_text(name_),
                     quote_name(members[*idx].first));
    return {};
  }

  std::string_view name_;
  std::vector<std::string_view> keys_;  // reused; of one object at a time
};

bool JsonValue::as_bool() const {
  SX_CHECK(is_bool(), "expected a boolean, found {}", kind_name());
  return *std::get_if<bool>(&data_);
}

int64_t JsonValue::as_int() const {
  SX_CHECK(is_int(), "expected an integer, found {}", kind_name());
  return *std::get_if<int64_t>(&data_);
}

double JsonValue::as_double() const {
  if (const auto* i = std::get_if<int64_t>(&data_)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&data_)) return static_cast<double>(*u);
  SX_CHECK(is_number(), "expected a number, found {}", kind_name());
  return *std::get_if<double>(&data_);
}

const std::string& JsonValue::as_string() const {
  SX_CHECK(is_string(), "expected a string, found {}", kind_name());
  return *std::get_if<std::string>(&data_);
}

const std::vector<JsonValue>& JsonValue::array() const {
  SX_CHECK(is_array(), "expected an array, found {}", kind_name());
  return *std::get_if<std::vector<JsonValue>>(&data_);
}

const std::vector<JsonMember>& JsonValue::members() const {
  SX_CHECK(is_object(), "expected an object, found {}", kind_name());
  return *std::get_if<std::vector<JsonMember>>(&data_);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto* members = std::get_if<std::vector<JsonMember>>(&data_);
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members)
    if (member.first == key) return &member.second;
  return nullptr;
}

Json JsonValue::to_json() const {
  switch (kind()) {
    case Kind::kNull: return nullptr;
    case Kind::kBool: return as_bool();
    case Kind::kInt: return as_int();
    case Kind::kUint: return *std::get_if<uint64_t>(&data_);
    case Kind::kDouble: return as_double();
    case Kind::kString: return as_string();
    case Kind::kArray: {
      Json out = Json::array();
      for (const JsonValue& item : array()) out.push_back(item.to_json());
      return out;
    }
    case Kind::kObject: break;
  }
  // Keys are known to differ; operator[] of an ordered_json would look through all of them again.
  Json out = Json::object();
  auto& object = out.get_ref<Json::object_t&>();
  object.reserve(members().size());
  for (const JsonMember& member : members())
    static_cast<std::vector<Json::object_t::value_type>&>(object).emplace_back(
        member.first, member.second.to_json());
  return out;
}

std::string_view JsonValue::kind_name() const {
  switch (kind()) {
    case Kind::kNull: return "null";
    case Kind::kBool: return "a boolean";
    case Kind::kInt:
    case Kind::kUint: return "an integer";
    case Kind::kDouble: return "a number";
    case Kind::kString: return "a string";
    case Kind::kArray: return "an array";
    case Kind::kObject: break;
  }
  return "an object";
}

namespace {

Result<JsonValue> parse_owned(std::string text, std::string_view name, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes)
    return fail_at({std::string(name), {}, {}, {}}, Code::kInput,
                   "{}: too large: expected at most {} bytes of JSON, found {}", escape_text(name),
                   limits.max_bytes, text.size());
  try {
    simdjson::dom::parser parser;
    const auto root = parse_dom(parser, text, limits.max_depth);
    if (!root) {
      const JsonFault& fault = root.error().fault;
      const Where where{std::string(name), {}, {}, static_cast<int64_t>(fault.offset)};
      if (const auto kind = recognize_file(std::string_view(text).substr(0, 512)))
        return fail_at(where, root.error().code, "{}: expected JSON, found {}", escape_text(name),
                       *kind);
      const LineColumn place = line_column(text, fault.offset);
      return fail_at(where, root.error().code, "{}: line {}, column {}: {}", escape_text(name),
                     place.line, place.column, fault.text);
    }
    JsonValue value;
    SX_TRY(JsonBuilder(name).build(*root, value));
    return value;
  } catch (const std::bad_alloc&) {
    return fail_at({std::string(name), {}, {}, {}}, Code::kResources,
                   "{}: not enough memory to parse {} bytes of JSON", escape_text(name),
                   text.size());
  }
}

bool has_non_finite(const Json& value) {
  if (value.is_number_float()) return !std::isfinite(value.get<double>());
  if (!value.is_structured()) return false;
  for (const Json& item : value)
    if (has_non_finite(item)) return true;
  return false;
}

void name_non_finite(Json& value) {
  if (value.is_number_float()) {
    const double x = value.get<double>();
    if (!std::isfinite(x)) value = std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
  } else if (value.is_structured()) {
    for (Json& item : value) name_non_finite(item);
  }
}

}  // namespace

Result<JsonValue> parse_json(std::string_view text, std::string_view name,
                             const JsonLimits& limits) {
  std::string copy;
  copy.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  copy.append(text);
  return parse_owned(std::move(copy), name, limits);
}

Result<JsonValue> read_json(const std::filesystem::path& path, const JsonLimits& limits) {
  SX_ASSIGN(std::string text, read_text_file(path, limits.max_bytes));
  return parse_owned(std::move(text), path.native(), limits);
}

std::string dump_json(const Json& value, int indent) {
  constexpr auto kReplace = Json::error_handler_t::replace;
  if (!has_non_finite(value)) return value.dump(indent, ' ', false, kReplace);
  Json copy = value;
  name_non_finite(copy);
  return copy.dump(indent, ' ', false, kReplace);
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace sextant
