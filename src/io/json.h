// JSON in two forms. JsonValue: an immutable tree read from a file or a string, strict (UTF-8, no
// duplicate keys, depth limit, no NaN literals, no comments), errors with line and column; parsed
// by simdjson, which stays inside io/. Json: nlohmann's ordered_json for what we write and for
// template variables, where key order matters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace sextant {

using Json = nlohmann::ordered_json;

class JsonValue;
using JsonMember = std::pair<std::string, JsonValue>;

class JsonValue {
 public:
  enum class Kind : uint8_t {
    kNull,
    kBool,
    kInt,
    kUint,
    kDouble,
    kString,
    kArray,
    kObject
  };  // kUint only above INT64_MAX

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_number() const {
    return kind_ == Kind::kInt || kind_ == Kind::kUint || kind_ == Kind::kDouble;
  }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // Values; each is a defect of ours on another kind, so test first.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  // any number
  const std::string& as_string() const;
  const std::vector<JsonValue>& array() const;
  const std::vector<JsonMember>& members() const;  // in file order

  // The member of an object, nullptr where this is no object or has none. Linear: for configs, not
  // for vocabularies.
  const JsonValue* find(std::string_view key) const;
  Json to_json() const;
  std::string_view kind_name() const;  // "an object", "a string", ... for messages

 private:
  friend class JsonBuilder;
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  int64_t int_ = 0;
  double double_ = 0;
  std::string string_;
  std::vector<JsonValue> array_;
  std::vector<JsonMember> members_;
};

struct JsonLimits {
  int64_t max_bytes = 256 << 20;
  int max_depth = 128;
};

Result<JsonValue> parse_json(std::string_view text, std::string_view name,
                             const JsonLimits& limits = {});  // name: for messages
Result<JsonValue> read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

}  // namespace sextant
