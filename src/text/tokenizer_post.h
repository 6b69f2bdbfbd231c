// The post-processor of a tokenizer.json: the special tokens before and after a text. Owns the
// kinds of post-processors for single texts; pairs have no use here.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer_json.h"
#include "text/tokenizer_vocab.h"

namespace sextant {

struct PostProcessor {
  std::vector<int32_t> before, after;
};

Result<PostProcessor> load_post_processor(const JsonValue& json, const JsonPlace& place);

}  // namespace sextant
