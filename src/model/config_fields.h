// Range-checked reading of one JSON object of a model's configuration. Owns the wording of those
// errors (field, what was expected, what was found) and nothing about any family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/json.h"

namespace sextant {

class ConfigFields {
 public:
  // prefix: "" or "rope_scaling.", what stands before a field's name in messages.
  ConfigFields(const JsonValue& object, std::string file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  // The member, or nullptr where it is missing or null.
  const JsonValue* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  bool is_null(std::string_view name) const;  // present, and null

  // A whole number in [low, high]; the default where it is missing or null, an error without one.
  Result<int64_t> integer(std::string_view name, int64_t low, int64_t high,
                          std::optional<int64_t> fallback = std::nullopt) const;
  // A finite number in [low, high].
  Result<double> number(std::string_view name, double low, double high,
                        std::optional<double> fallback = std::nullopt) const;
  Result<bool> boolean(std::string_view name, bool fallback) const;
  Result<std::string> text(std::string_view name, std::string_view fallback) const;
  // A list of strings; empty where it is missing or null.
  Result<std::vector<std::string>> texts(std::string_view name) const;
  // One whole number or a list of them; empty where it is missing or null.
  Result<std::vector<int64_t>> integers(std::string_view name, int64_t low, int64_t high) const;

  Where where(std::string_view name) const;
  const std::string& file() const { return file_; }

 private:
  const JsonValue& object_;
  std::string file_;
  std::string prefix_;
};

// The value as a message shows it: its JSON text, cut to a readable length.
std::string shown(const JsonValue& value);

}  // namespace sextant
