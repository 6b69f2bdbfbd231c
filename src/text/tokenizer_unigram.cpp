// The Unigram model: the split of a word whose pieces' scores add up highest, found from left to
// right. A character that no piece begins costs the lowest score less ten; of two ways with the
// same score the one found first wins (shorter pieces first). Neighboring unknown characters are
// one unknown token, or their bytes.
#include <algorithm>
#include <cmath>

#include "io/quote.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_trie.h"
#include "text/tokenizer_utf8.h"

namespace sextant {
namespace {

constexpr double kUnknownPenalty = 10.0;

class UnigramModel final : public TokenModel {
 public:
  Status load(FieldReader& fields);
  Status encode(std::string_view word, ModelScratch& scratch,
                std::vector<int32_t>& ids) const override;

 private:
  Status read_pieces(const JsonValue& list, const JsonPlace& place);
  Status search(std::string_view word, std::vector<ModelScratch::Node>& nodes) const;
  Status push_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  std::vector<double> scores_;
  ByteTrie trie_;
  std::vector<int32_t> bytes_;
  double lowest_ = std::numeric_limits<double>::infinity();
  int32_t unk_ = -1;
};

Status UnigramModel::load(FieldReader& fields) {
  const JsonValue* vocab = fields.list("vocab");
  unk_ = static_cast<int32_t>(fields.integer_or("unk_id", 0, kMaxTokenId, -1));
  const bool byte_fallback = fields.flag_or("byte_fallback", false);
  SX_TRY(fields.finish());
  SX_TRY(read_pieces(*vocab, fields.place().field("vocab")));
  if (unk_ >= vocab_.end_id())
    return fail_in(fields.place().field("unk_id"), Code::kInput, "expected at most {}, found {}",
                   vocab_.end_id() - 1, unk_);
  if (byte_fallback) bytes_ = byte_tokens(vocab_);
  return {};
}

Status UnigramModel::read_pieces(const JsonValue& list, const JsonPlace& place) {
  vocab_.reserve(list.array().size());
  int64_t id = 0;
  for (const JsonValue& item : list.array()) {
    const JsonPlace here = place.item(static_cast<size_t>(id));
    if (!item.is_array() || item.array().size() != 2 || !item.array()[0].is_string() ||
        !item.array()[1].is_number())
      return fail_in(here, Code::kInput, "expected a piece and its score, found {}",
                     item.is_array() ? "another list" : item.kind_name());
    const std::string& piece = item.array()[0].as_string();
    const double score = item.array()[1].as_double();
    if (!std::isfinite(score))
      return fail_in(here, Code::kInput, "expected a finite score of {}, found {}",
                     quote_name(piece), score);
    SX_TRY(vocab_.add(piece, id, here));
    scores_.push_back(score);
    lowest_ = std::min(lowest_, score);
    if (!piece.empty() && !trie_.add(piece, static_cast<int32_t>(id)))
      return fail_in(here, Code::kInput, "expected pieces of at most {} bytes together",
                     ByteTrie::kMaxNodes);
    ++id;
  }
  return {};
}

Status UnigramModel::search(std::string_view word, std::vector<ModelScratch::Node>& nodes) const {
  nodes.assign(word.size() + 1, {0.0, -1, -1});
  size_t at = 0;
  while (at < word.size()) {
    const double here = nodes[at].score;
    const size_t n_char = char_bytes(word[at]);
    bool single = false;
    const auto offer = [&](size_t end, double score, int32_t id) {
      ModelScratch::Node& node = nodes[end];
      if (node.from < 0 || here + score > node.score)
        node = {here + score, id, static_cast<int32_t>(at)};
    };
    trie_.walk(word, at, [&](size_t end, int32_t id) {
      offer(end, scores_[static_cast<size_t>(id)], id);
      single = single || end - at == n_char;
    });
    if (!single) {
      if (unk_ < 0)
        return fail(Code::kInput, "the character {} is not in the vocabulary, which has no unk_id",
                    quote_name(word.substr(at, n_char)));
      offer(at + n_char, lowest_ - kUnknownPenalty, unk_);
    }
    at += n_char;
  }
  return {};
}

Status UnigramModel::push_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const int32_t id = vocab_.find(piece); id >= 0) {
    ids.push_back(id);
    return {};
  }
  const bool as_bytes = !bytes_.empty() && std::all_of(piece.begin(), piece.end(), [&](char c) {
    return bytes_[static_cast<uint8_t>(c)] >= 0;
  });
  if (as_bytes)
    for (const char c : piece) ids.push_back(bytes_[static_cast<uint8_t>(c)]);
  else
    ids.push_back(unk_);
  return {};
}

Status UnigramModel::encode(std::string_view word, ModelScratch& scratch,
                            std::vector<int32_t>& ids) const {
  std::vector<ModelScratch::Node>& nodes = scratch.nodes;
  SX_TRY(search(word, nodes));
  // Back from the end; a run of unknown characters becomes one piece. Reused as (from, to) pairs.
  std::vector<std::pair<size_t, size_t>> pieces;
  size_t end = word.size();
  bool in_unknown = false;
  while (end > 0) {
    const ModelScratch::Node& node = nodes[end];
    const auto begin = static_cast<size_t>(node.from);
    const bool unknown = node.id == unk_;
    if (unknown && in_unknown)
      pieces.back().first = begin;
    else
      pieces.emplace_back(begin, end);
    in_unknown = unknown;
    end = begin;
  }
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it)
    SX_TRY(push_piece(word.substr(it->first, it->second - it->first), ids));
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenModel>> load_unigram(FieldReader& fields) {
  auto model = std::make_unique<UnigramModel>();
  SX_TRY(model->load(fields));
  return model;
}

}  // namespace sextant
