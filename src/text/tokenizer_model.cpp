// Which model a tokenizer.json has, its vocabulary, and the small models: WordPiece and WordLevel.
#include "text/tokenizer_model.h"

#include "io/quote.h"
#include "text/tokenizer_utf8.h"

namespace sextant {

Status read_vocab(const JsonValue& object, const JsonPlace& place, Vocab& vocab) {
  vocab.reserve(object.members().size());
  for (const auto& [token, id] : object.members()) {
    if (id.is_int()) {
      SX_TRY(vocab.add(token, id.as_int(), place));
    } else {
      return fail_in(place, Code::kInput, "expected a whole number as the id of {}, found {}",
                     quote_name(token), id.kind_name());
    }
  }
  return {};
}

std::vector<int32_t> byte_tokens(const Vocab& vocab) {
  std::vector<int32_t> ids(256);
  for (int b = 0; b < 256; ++b)
    ids[static_cast<size_t>(b)] = vocab.find(fmt::format("<0x{:02X}>", b));
  return ids;
}

namespace {

// Whole words or the unknown token.
class WordLevelModel final : public TokenModel {
 public:
  Status load(FieldReader& fields) {
    const JsonValue* vocab = fields.object("vocab");
    const std::string unk = fields.text("unk_token");
    SX_TRY(fields.finish());
    SX_TRY(read_vocab(*vocab, fields.place().field("vocab"), vocab_));
    unk_ = vocab_.find(unk);
    return {};
  }

  Status encode(std::string_view word, ModelScratch&, std::vector<int32_t>& ids) const override {
    const int32_t id = vocab_.find(word);
    if (id < 0 && unk_ < 0)
      return fail(Code::kInput, "the word {} is not in the vocabulary, which has no unknown token",
                  quote_name(word));
    ids.push_back(id >= 0 ? id : unk_);
    return {};
  }

 private:
  int32_t unk_ = -1;
};

// Greedy longest match from the left, continuations with a prefix; a word that does not come out
// even is the unknown token.
class WordPieceModel final : public TokenModel {
 public:
  Status load(FieldReader& fields) {
    const JsonValue* vocab = fields.object("vocab");
    const std::string unk = fields.text_or("unk_token", "[UNK]");
    prefix_ = fields.text_or("continuing_subword_prefix", "##");
    max_chars_ = static_cast<size_t>(
        fields.integer_or("max_input_chars_per_word", 0, int64_t{1} << 20, 100));
    SX_TRY(fields.finish());
    SX_TRY(read_vocab(*vocab, fields.place().field("vocab"), vocab_));
    unk_ = vocab_.find(unk);
    for (int32_t id = 0; id < vocab_.end_id(); ++id)
      longest_ = std::max(longest_, vocab_.token(id).size());
    return {};
  }

  Status encode(std::string_view word, ModelScratch& scratch,
                std::vector<int32_t>& ids) const override {
    const size_t first = ids.size();
    if (count_chars(word) <= max_chars_ && pieces(word, scratch, ids)) return {};
    ids.resize(first);
    if (unk_ < 0)
      return fail(Code::kInput, "the word {} is not in the vocabulary, which has no unknown token",
                  quote_name(word));
    ids.push_back(unk_);
    return {};
  }

 private:
  bool pieces(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& ids) const {
    size_t begin = 0;
    while (begin < word.size()) {
      std::string& candidate = scratch.text;
      int32_t found = -1;
      size_t end = std::min(word.size(), begin + longest_);
      while (end < word.size() && (static_cast<uint8_t>(word[end]) & 0xC0) == 0x80) --end;
      for (; end > begin; end = char_before(word, end)) {
        candidate.assign(begin > 0 ? prefix_ : "");
        candidate.append(word, begin, end - begin);
        found = vocab_.find(candidate);
        if (found >= 0) break;
      }
      if (found < 0) return false;
      ids.push_back(found);
      begin = end;
    }
    return true;
  }

  std::string prefix_;
  size_t max_chars_ = 100;
  size_t longest_ = 0;
  int32_t unk_ = -1;
};

template <class Model>
Result<std::unique_ptr<TokenModel>> load_as(FieldReader& fields) {
  auto model = std::make_unique<Model>();
  SX_TRY(model->load(fields));
  return model;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> load_wordpiece(FieldReader& fields) {
  return load_as<WordPieceModel>(fields);
}

Result<std::unique_ptr<TokenModel>> load_wordlevel(FieldReader& fields) {
  return load_as<WordLevelModel>(fields);
}

Result<std::unique_ptr<TokenModel>> load_model(const JsonValue& json, const JsonPlace& place) {
  std::string type;
  if (json.is_object() && json.find("type") == nullptr) {
    type = json.find("merges") != nullptr ? "BPE" : "";  // files of old versions
  } else {
    SX_ASSIGN(type, part_type(json, place));
  }
  FieldReader fields(json, place);
  fields.ignore("type");
  if (type == "BPE") return load_bpe(fields);
  if (type == "Unigram") return load_unigram(fields);
  if (type == "WordPiece") return load_wordpiece(fields);
  if (type == "WordLevel") return load_wordlevel(fields);
  return fail_in(place.field("type"), Code::kUnsupported,
                 "expected BPE, Unigram, WordPiece or WordLevel, found {}", quote_name(type));
}

}  // namespace sextant
