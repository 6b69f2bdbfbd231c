// The decoder of a tokenizer.json: what makes text of tokens. Owns the kinds of decoders; unknown
// ones are refused by name. Bytes that are no character become U+FFFD as the package writes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer_json.h"

namespace sextant {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Changes the list of pieces; what is left at the end is joined.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

Result<std::unique_ptr<TokenDecoder>> load_decoder(const JsonValue& json, const JsonPlace& place);

}  // namespace sextant
