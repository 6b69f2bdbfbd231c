// JSON in two forms. JsonValue: an immutable tree read from a file or a string, strict (UTF-8, no
// byte-order mark, no duplicate keys, depth limit, no NaN literals, no comments, no trailing
// commas), errors with line and column; parsed by simdjson, which stays inside io/. Json:
// nlohmann's ordered_json for what we write and for template variables, where key order matters.
//
// Integers beyond 64 bits become doubles, as files hold them (a model_max_length of 10^30 written
// out). "-0" is the integer 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace sextant {

using Json = nlohmann::ordered_json;

// Numbers JSON cannot hold are the strings "nan", "inf", "-inf".
Json json_number(double value);

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

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_number() const {
    return kind() == Kind::kInt || kind() == Kind::kUint || kind() == Kind::kDouble;
  }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

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
  // In the order of Kind. 40 bytes a value: a vocabulary is millions of them.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<JsonValue>,
               std::vector<JsonMember>>
      data_;
};

struct JsonLimits {
  int64_t max_bytes = 256 << 20;
  int max_depth = 128;  // of objects and arrays that hold something; at most 1000
};

Result<JsonValue> parse_json(std::string_view text, std::string_view name,
                             const JsonLimits& limits = {});  // name: for messages
Result<JsonValue> read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

// What we write, as text: NaN and infinities, which JSON cannot hold, become the strings "nan",
// "inf" and "-inf" (cli.md section 4); bytes that are not UTF-8 become U+FFFD. Never throws. indent
// -1: one line.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace sextant
