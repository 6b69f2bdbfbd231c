// Reading the parts of a tokenizer.json: one object's fields with the first error kept, so that a
// loader states its fields in a row and asks once. Names every problem by its path in the file.
// A field that a part does not know is refused by name: it may change what the part means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/json.h"

namespace sextant {

// Where we are: the file's name and the path inside it, "pre_tokenizer.pretokenizers[1]".
struct JsonPlace {
  std::string file;
  std::string path;

  JsonPlace field(std::string_view name) const;
  JsonPlace item(size_t i) const;
};

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail_in(const JsonPlace& place, Code code,
                                            fmt::format_string<Args...> format, Args&&... args) {
  return fail_at(Where{place.file, {}, place.path, {}}, code, "{}: {}: {}", place.file, place.path,
                 fmt::format(format, std::forward<Args>(args)...));
}

class FieldReader {
 public:
  FieldReader(const JsonValue& object, JsonPlace place);

  const JsonPlace& place() const { return place_; }
  // Required, or with a default that stands for a missing field and null.
  std::string text(std::string_view name);
  std::string text_or(std::string_view name, std::string_view missing);
  bool flag(std::string_view name);
  bool flag_or(std::string_view name, bool missing);
  int64_t integer(std::string_view name, int64_t low, int64_t high);
  int64_t integer_or(std::string_view name, int64_t low, int64_t high, int64_t missing);
  const JsonValue* list(std::string_view name);    // required array
  const JsonValue* object(std::string_view name);  // required object
  const JsonValue* any(std::string_view name);     // nullptr where missing or null
  void ignore(std::string_view name);              // known and without effect here
  Status finish();                                 // the first error, or an unknown field

 private:
  const JsonValue* take(std::string_view name);
  void wrong(std::string_view name, std::string_view expected, const JsonValue* found);

  const JsonValue& object_;
  JsonPlace place_;
  std::vector<std::string> known_;
  Status status_;
};

// The value of "type" of a part, which must be an object that has one.
Result<std::string> part_type(const JsonValue& part, const JsonPlace& place);

// Sequences inside sequences; deeper ones are refused before they cost the stack.
inline constexpr int kMaxSequenceDepth = 8;

// The parts of a "Sequence", whose list is in field `name`, each read by load(json, place, depth).
template <class Part>
Result<std::vector<Part>> load_sequence(FieldReader& fields, std::string_view name, int depth,
                                        Result<Part> (*load)(const JsonValue&, const JsonPlace&,
                                                             int)) {
  const JsonValue* list = fields.list(name);
  SX_TRY(fields.finish());
  if (depth >= kMaxSequenceDepth)
    return fail_in(fields.place(), Code::kInput, "expected at most {} nested sequences",
                   kMaxSequenceDepth);
  std::vector<Part> parts;
  for (size_t i = 0; i < list->array().size(); ++i) {
    SX_ASSIGN(Part part, load(list->array()[i], fields.place().field(name).item(i), depth + 1));
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace sextant
