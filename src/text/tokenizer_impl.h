// Private to the tokenizer: its parts as tokenizer_load.cpp puts them together.
#pragma once

#include <memory>

#include "text/normalizer.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_decoder.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_post.h"

namespace sextant {

struct Tokenizer::Impl {
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<Normalizer> normalizer;      // null: none
  std::unique_ptr<PreTokenizer> pretokenizer;  // null: none
  std::unique_ptr<TokenDecoder> decoder;       // null: pieces joined by spaces
  AddedVocab added;
  PostProcessor post;

  static Result<std::unique_ptr<Impl>> load(const JsonValue& json, std::string_view name);
  Status encode_text(std::string_view text, bool at_origin, Words& words, ModelScratch& scratch,
                     std::vector<int32_t>& ids) const;
  bool token_of(int32_t id, bool skip_special, std::string& out) const;  // false: left out
};

}  // namespace sextant
