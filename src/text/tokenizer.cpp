// Encoding, decoding and streaming over the parts of a tokenizer (tokenizer.h).
#include "text/tokenizer.h"

#include <algorithm>

#include "io/json.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_utf8.h"

namespace sextant {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} << 20;

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(const JsonValue& json,
                                                              std::string_view name) {
  SX_ASSIGN(auto impl, Impl::load(json, name));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path file =
      std::filesystem::is_directory(path, error) ? path / "tokenizer.json" : path;
  SX_ASSIGN(const JsonValue json, read_json(file));
  return from_json(json, file.string());
}

// One normalized piece of text between added tokens.
Status Tokenizer::Impl::encode_text(std::string_view text, bool at_origin, Words& words,
                                    ModelScratch& scratch, std::vector<int32_t>& ids) const {
  words.text.assign(text);
  words.words.assign(1, {0, text.size(), at_origin});
  if (pretokenizer != nullptr) SX_TRY(pretokenizer->apply(words));
  for (const Words::Word& word : words.words)
    if (word.end > word.begin) SX_TRY(model->encode(words.view(word), scratch, ids));
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes)
    return fail(Code::kInput, "expected a text of at most {} bytes, found {}", kMaxTextBytes,
                text.size());
  std::string repaired;
  if (!utf8_valid(text)) {
    repaired = utf8_lossy(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (options.add_special) ids = impl_->post.before;
  std::vector<AddedVocab::Part> outer;
  std::vector<AddedVocab::Part> inner;
  NormalText normal;
  Words words;
  ModelScratch scratch;
  impl_->added.split(text, false, options.parse_special, outer);
  for (const AddedVocab::Part& part : outer) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      continue;
    }
    normal.text.assign(text, part.begin, part.end - part.begin);
    normal.begins_at_origin = part.begin == 0;
    if (impl_->normalizer != nullptr) SX_TRY(impl_->normalizer->apply(normal));
    inner.clear();
    impl_->added.split(normal.text, true, options.parse_special, inner);
    for (const AddedVocab::Part& piece : inner) {
      if (piece.token != nullptr) {
        ids.push_back(piece.token->id);
        continue;
      }
      const auto view = std::string_view(normal.text).substr(piece.begin, piece.end - piece.begin);
      const bool at_origin = normal.begins_at_origin && piece.begin == 0;
      SX_TRY(impl_->encode_text(view, at_origin, words, scratch, ids));
    }
  }
  if (options.add_special)
    ids.insert(ids.end(), impl_->post.after.begin(), impl_->post.after.end());
  return ids;
}

bool Tokenizer::Impl::token_of(int32_t id, bool skip_special, std::string& out) const {
  const AddedToken* token = added.by_id(id);
  if (token == nullptr && !model->vocab().has(id)) return false;
  out.assign(token != nullptr ? std::string_view(token->shown) : model->vocab().token(id));
  // By what is shown, as the package asks: a special token that normalizing changes is not skipped.
  return !(skip_special && added.is_special(out));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  std::string piece;
  for (const int32_t id : ids)
    if (impl_->token_of(id, skip_special, piece)) pieces.push_back(piece);
  const bool spaced = impl_->decoder == nullptr;
  if (!spaced) impl_->decoder->apply(pieces);
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (spaced && i > 0) text.push_back(' ');
    text += pieces[i];
  }
  return text;
}

int64_t Tokenizer::n_vocab() const {
  return std::max(impl_->model->vocab().end_id(), impl_->added.end_id());
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = impl_->added.by_content(token)) return added->id;
  const int32_t id = impl_->model->vocab().find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::string_view Tokenizer::token(int32_t id) const {
  if (const AddedToken* added = impl_->added.by_id(id)) return added->content;
  return impl_->model->vocab().token(id);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = impl_->added.by_id(id);
  return added != nullptr && added->special;
}

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

// The window: ids_ are the last ids, prefix_ the text of the first prefix_end_ of them, which has
// been given out. A decoder may write a token otherwise at the start of a text than inside (a
// leading space), so what an id adds is what it adds to the text of the ids before it.
std::string StreamDecoder::push(int32_t id) {
  if (prefix_.empty() && !ids_.empty()) {
    std::string known = tokenizer_->decode(ids_, skip_special_);
    if (!known.ends_with(kReplacementChar)) {
      prefix_ = std::move(known);
      prefix_end_ = ids_.size();
    }
  }
  ids_.push_back(id);
  std::string text = tokenizer_->decode(ids_, skip_special_);
  if (text.size() <= prefix_.size() || text.ends_with(kReplacementChar)) return {};
  std::string added = added_to(text);
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(prefix_end_));
  prefix_end_ = ids_.size();
  prefix_ = tokenizer_->decode(ids_, skip_special_);
  return added;
}

std::string StreamDecoder::finish() {
  std::string added = added_to(tokenizer_->decode(ids_, skip_special_));
  ids_.clear();
  prefix_.clear();
  prefix_end_ = 0;
  return added;
}

// What stands behind the prefix. Where the decoder changed the prefix itself, which the package
// calls an error, what both begin with counts as given out.
std::string StreamDecoder::added_to(std::string_view text) const {
  size_t same = 0;
  while (same < prefix_.size() && same < text.size() && text[same] == prefix_[same]) ++same;
  while (same > 0 && same < text.size() && (static_cast<uint8_t>(text[same]) & 0xC0) == 0x80)
    --same;
  return std::string(text.substr(same));
}

}  // namespace sextant
