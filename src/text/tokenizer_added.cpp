// AddedVocab (tokenizer_added.h).
#include "text/tokenizer_added.h"

#include <algorithm>

#include "io/quote.h"
#include "text/tokenizer_utf8.h"
#include "text/unicode_tables.h"

namespace sextant {
namespace {

bool has_class(std::string_view text, size_t begin, CharClass flag) {
  return (char_table()[next_char(text, begin)] & flag) != 0;
}

// A word character right before `at`, or at it.
bool word_before(std::string_view text, size_t at) {
  return at > 0 && has_class(text, char_before(text, at), kCharWord);
}
bool word_at(std::string_view text, size_t at) {
  return at < text.size() && has_class(text, at, kCharWord);
}

}  // namespace

// The package does not take the file's word for an id: a token of the vocabulary keeps its id
// there, others are numbered behind it in the file's order. The same here, for equal ids, except
// where the vocabulary has holes: the package would give out ids that are taken.
int32_t AddedVocab::assign_id(std::string_view content, int32_t in_file, const Vocab& model) const {
  if (const int32_t id = model.find(content); id >= 0) return id;
  if (static_cast<size_t>(model.end_id()) != model.count()) return in_file;
  return std::max(model.end_id(), end_id_);
}

Status AddedVocab::read(const JsonValue& item, const JsonPlace& place, const Vocab& model) {
  FieldReader fields(item, place);
  AddedToken token;
  token.id = static_cast<int32_t>(fields.integer("id", 0, kMaxTokenId));
  token.content = fields.text("content");
  token.single_word = fields.flag_or("single_word", false);
  token.lstrip = fields.flag_or("lstrip", false);
  token.rstrip = fields.flag_or("rstrip", false);
  token.special = fields.flag_or("special", false);
  token.normalized = fields.flag_or("normalized", !token.special);
  SX_TRY(fields.finish());
  if (token.content.empty())
    return fail_in(place.field("content"), Code::kInput,
                   "expected at least one character, found an empty token with id {}", token.id);
  if (token.content.size() > kMaxAddedTokenBytes)
    return fail_in(place.field("content"), Code::kInput, "expected at most {} bytes, found {}",
                   kMaxAddedTokenBytes, token.content.size());
  token.id = assign_id(token.content, token.id, model);
  const int32_t in_model = model.find(token.content);
  if (in_model < 0 && model.has(token.id))
    return fail_in(place, Code::kInput, "expected a free id for {}, found {}, which is {}",
                   quote_name(token.content), token.id, quote_name(model.token(token.id)));
  token.shown = token.content;
  const size_t index = tokens_.size();
  if (const auto [it, fresh] = by_id_.try_emplace(token.id, index); !fresh)
    return fail_in(place, Code::kInput, "expected one added token an id, found {} and {} with {}",
                   quote_name(tokens_[it->second].content), quote_name(token.content), token.id);
  if (!by_content_.try_emplace(token.content, index).second)
    return fail_in(place, Code::kInput, "expected each added token once, found {} again",
                   quote_name(token.content));
  end_id_ = std::max(end_id_, token.id + 1);
  tokens_.push_back(std::move(token));
  return {};
}

Status AddedVocab::build(const JsonPlace& place, const Normalizer* normalizer) {
  // Of tokens that are the same once normalized the last one counts, special ones after others.
  for (const bool special : {false, true}) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      AddedToken& token = tokens_[i];
      if (token.special != special) continue;
      bool fits = true;
      if (!token.normalized) {
        fits = raw_.add(token.content, static_cast<int32_t>(i));
      } else {
        NormalText text{token.content, false};
        if (normalizer != nullptr) SX_TRY(normalizer->apply(text));
        if (!text.text.empty()) fits = normalized_.add(text.text, static_cast<int32_t>(i));
        token.shown = std::move(text.text);
      }
      if (!fits)
        return fail_in(place, Code::kResources,
                       "expected added tokens of at most {} bytes together", ByteTrie::kMaxNodes);
    }
  }
  return {};
}

Status AddedVocab::load(const JsonValue& list, const JsonPlace& place, const Vocab& model,
                        const Normalizer* normalizer) {
  if (!list.is_array())
    return fail_in(place, Code::kInput, "expected a list, found {}", list.kind_name());
  if (list.array().size() > kMaxAddedTokens)
    return fail_in(place, Code::kInput, "expected at most {} added tokens, found {}",
                   kMaxAddedTokens, list.array().size());
  tokens_.reserve(list.array().size());
  for (size_t i = 0; i < list.array().size(); ++i)
    SX_TRY(read(list.array()[i], place.item(i), model));
  return build(place, normalizer);
}

void AddedVocab::split(std::string_view text, bool normalized, bool parse_special,
                       std::vector<Part>& parts) const {
  const ByteTrie& trie = normalized ? normalized_ : raw_;
  size_t done = 0;  // end of the last part
  size_t at = 0;
  while (!trie.empty() && at < text.size()) {
    if (!trie.begins(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    const AddedToken* token = nullptr;
    trie.walk(text, at, [&](size_t e, int32_t i) {  // the last one is the longest
      end = e;
      token = &tokens_[static_cast<size_t>(i)];
    });
    if (token == nullptr) {
      ++at;
      continue;
    }
    // What is found is used up, even where a flag then says that it is no match.
    size_t begin = at;
    at = end;
    if (token->special && !parse_special) continue;
    if (token->single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token->lstrip)
      while (begin > done && has_class(text, char_before(text, begin), kCharSpace))
        begin = char_before(text, begin);
    if (token->rstrip)
      while (end < text.size() && has_class(text, end, kCharSpace)) end += char_bytes(text[end]);
    begin = std::max(begin, done);
    if (begin > done) parts.push_back({done, begin, nullptr});
    parts.push_back({begin, end, token});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), nullptr});
}

const AddedToken* AddedVocab::by_id(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedVocab::by_content(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

bool AddedVocab::is_special(std::string_view content) const {
  const AddedToken* token = by_content(content);
  return token != nullptr && token->special;
}

}  // namespace sextant
