// Added tokens: matched in the text itself, before the model sees it. Those that are not
// normalized are looked for first, in the raw text; the others in each normalized piece between.
// Of matches that overlap the leftmost wins, then the longest. Owns the flags lstrip, rstrip,
// single_word, normalized and special.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/normalizer.h"
#include "text/tokenizer_trie.h"
#include "text/tokenizer_vocab.h"

namespace sextant {

inline constexpr size_t kMaxAddedTokens = 1 << 21;
inline constexpr size_t kMaxAddedTokenBytes = 4096;

struct AddedToken {
  std::string content;
  std::string shown;  // what decoding gives: the content, normalized where the flag says so
  int32_t id = 0;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

class AddedVocab {
 public:
  // A part of a text: an added token, or what stands between two (token null).
  struct Part {
    size_t begin, end;
    const AddedToken* token;
  };

  // normalizer may be null.
  Status load(const JsonValue& list, const JsonPlace& place, const Vocab& model,
              const Normalizer* normalizer);

  // The parts of a text, in order, covering it. normalized: look for the tokens whose flag says so.
  // parse_special: false leaves special tokens in the text.
  void split(std::string_view text, bool normalized, bool parse_special,
             std::vector<Part>& parts) const;

  const AddedToken* by_id(int32_t id) const;
  const AddedToken* by_content(std::string_view content) const;
  bool is_special(std::string_view content) const;
  bool empty() const { return tokens_.empty(); }
  int32_t end_id() const { return end_id_; }

 private:
  int32_t assign_id(std::string_view content, int32_t in_file, const Vocab& model) const;
  Status read(const JsonValue& item, const JsonPlace& place, const Vocab& model);
  Status build(const JsonPlace& place, const Normalizer* normalizer);

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  ByteTrie raw_, normalized_;  // values: indices of tokens_
  int32_t end_id_ = 0;
};

}  // namespace sextant
