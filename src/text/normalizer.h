// The normalizer of a tokenizer.json: what happens to the text between added tokens before it is
// split. Owns the kinds of normalizers; unknown ones are refused by name. Each must give what the
// Python package gives, in its Unicode versions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer_json.h"

namespace sextant {

// A text on its way. begins_at_origin: its first character still comes from the first one of the
// whole input, which Metaspace's "first" asks for.
struct NormalText {
  std::string text;
  bool begins_at_origin = false;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Status apply(NormalText& text) const = 0;
};

Result<std::unique_ptr<Normalizer>> load_normalizer(const JsonValue& json, const JsonPlace& place);

// {"type": "Precompiled"}: the character map of a SentencePiece model.
Result<std::unique_ptr<Normalizer>> load_precompiled(FieldReader& fields);

// The Unicode normal forms of the package's version.
enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace sextant
