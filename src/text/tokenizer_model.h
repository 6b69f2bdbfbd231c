// The model of a tokenizer.json: what turns one pre-token into ids. BPE, Unigram, WordPiece and
// WordLevel. Owns its vocabulary; knows nothing about added tokens, normalizers or pre-tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer_json.h"
#include "text/tokenizer_vocab.h"

namespace sextant {

// Working memory of one encode call, so that words do not allocate.
struct ModelScratch {
  struct Symbol {
    int32_t id;
    int32_t prev, next;  // -1 at the ends
    bool gone;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // BPE: candidates by rank and place
  std::string text;
  // Unigram: the best way to reach each byte.
  struct Node {
    double score;
    int32_t id;
    int32_t from;  // -1: not reached
  };
  std::vector<Node> nodes;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one pre-token, valid UTF-8 and not empty.
  virtual Status encode(std::string_view word, ModelScratch& scratch,
                        std::vector<int32_t>& ids) const = 0;
  const Vocab& vocab() const { return vocab_; }

 protected:
  Vocab vocab_;
};

Result<std::unique_ptr<TokenModel>> load_model(const JsonValue& json, const JsonPlace& place);

// One loader a kind; fields has answered for "type" already.
Result<std::unique_ptr<TokenModel>> load_bpe(FieldReader& fields);
Result<std::unique_ptr<TokenModel>> load_unigram(FieldReader& fields);
Result<std::unique_ptr<TokenModel>> load_wordpiece(FieldReader& fields);
Result<std::unique_ptr<TokenModel>> load_wordlevel(FieldReader& fields);

// The "vocab" object of BPE, WordPiece and WordLevel.
Status read_vocab(const JsonValue& object, const JsonPlace& place, Vocab& vocab);

// The ids of "<0x00>" to "<0xFF>", -1 where the vocabulary has none.
std::vector<int32_t> byte_tokens(const Vocab& vocab);

}  // namespace sextant
