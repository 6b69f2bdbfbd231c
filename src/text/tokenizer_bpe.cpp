// Byte pair encoding. A word starts as its characters (or their bytes, or the unknown token) and
// the pair of lowest rank is joined, the leftmost first, until no pair has a rank. Short words look
// for the lowest rank each time; long ones keep a heap, so a megabyte of one character stays
// n log n.
#include <algorithm>
#include <array>
#include <functional>

#include "io/quote.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_utf8.h"

namespace sextant {
namespace {

constexpr int64_t kMaxMerges = 1 << 23;
constexpr size_t kShortWord = 24;  // symbols; up to here a scan is faster than the heap

// (left, right) -> (rank, joined): open addressing, half full at most.
class MergeTable {
 public:
  struct Entry {
    uint64_t key = kFree;
    uint32_t rank = 0;
    int32_t new_id = 0;
  };

  void reserve(size_t n) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    entries_.assign(size, Entry{});
    mask_ = size - 1;
  }

  // A pair that comes twice keeps the later rank, as a map would.
  void set(int32_t left, int32_t right, uint32_t rank, int32_t new_id) {
    entries_[slot(key_of(left, right))] = {key_of(left, right), rank, new_id};
  }

  const Entry* find(int32_t left, int32_t right) const {
    const Entry& entry = entries_[slot(key_of(left, right))];
    return entry.key == kFree ? nullptr : &entry;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t key_of(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
    size_t at = hash & mask_;
    while (entries_[at].key != kFree && entries_[at].key != key) at = (at + 1) & mask_;
    return at;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(16);
  size_t mask_ = 15;
};

class BpeModel final : public TokenModel {
 public:
  Status load(FieldReader& fields);
  Status encode(std::string_view word, ModelScratch& scratch,
                std::vector<int32_t>& ids) const override;

 private:
  using Symbol = ModelScratch::Symbol;

  Status read_merges(const JsonValue& list, const JsonPlace& place);
  Status add_merge(std::string_view left, std::string_view right, uint32_t rank,
                   const JsonPlace& place);
  Status start(std::string_view word, ModelScratch& scratch) const;
  int32_t id_of_char(std::string_view c, bool first, bool last, std::string& text) const;
  bool push_bytes(std::string_view text, std::vector<Symbol>& symbols) const;
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(ModelScratch& scratch) const;

  MergeTable merges_;
  std::vector<int32_t> small_;  // ids of the characters below U+0800
  std::vector<int32_t> bytes_;  // ids of <0x00> ..., with byte_fallback
  std::string prefix_, suffix_, unk_token_;
  bool has_unk_ = false;
  int32_t unk_ = -1;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

void push_symbol(std::vector<ModelScratch::Symbol>& symbols, int32_t id) {
  const auto at = static_cast<int32_t>(symbols.size());
  if (at > 0) symbols.back().next = at;
  symbols.push_back({id, at - 1, -1, false});
}

Status BpeModel::load(FieldReader& fields) {
  const JsonValue* vocab = fields.object("vocab");
  const JsonValue* merges = fields.list("merges");
  const JsonValue* unk = fields.any("unk_token");
  unk_token_ = fields.text_or("unk_token", "");
  has_unk_ = unk != nullptr;
  prefix_ = fields.text_or("continuing_subword_prefix", "");
  suffix_ = fields.text_or("end_of_word_suffix", "");
  fuse_unk_ = fields.flag_or("fuse_unk", false);
  ignore_merges_ = fields.flag_or("ignore_merges", false);
  const bool byte_fallback = fields.flag_or("byte_fallback", false);
  const JsonValue* dropout = fields.any("dropout");
  SX_TRY(fields.finish());
  const JsonPlace& place = fields.place();
  if (dropout != nullptr && !(dropout->is_number() && dropout->as_double() == 0.0))
    return fail_in(place.field("dropout"), Code::kUnsupported,
                   "expected null or 0, found another value: dropping merges at random is for "
                   "training; set it to null");
  SX_TRY(read_vocab(*vocab, place.field("vocab"), vocab_));
  SX_TRY(read_merges(*merges, place.field("merges")));
  unk_ = has_unk_ ? vocab_.find(unk_token_) : -1;
  if (byte_fallback) bytes_ = byte_tokens(vocab_);
  small_.resize(0x800);
  std::string c;
  for (uint32_t i = 0; i < 0x800; ++i) {
    c.clear();
    append_utf8(c, i);
    small_[i] = vocab_.find(c);
  }
  return {};
}

Status BpeModel::read_merges(const JsonValue& list, const JsonPlace& place) {
  const auto& items = list.array();
  if (static_cast<int64_t>(items.size()) > kMaxMerges)
    return fail_in(place, Code::kInput, "expected at most {} merges, found {}", kMaxMerges,
                   items.size());
  merges_.reserve(items.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const JsonValue& item = items[i];
    if (item.is_string()) {
      const std::string& text = item.as_string();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        return fail_in(place.item(i), Code::kInput, "expected two tokens and a space, found {}",
                       quote_name(text));
      const std::string_view view = text;
      SX_TRY(add_merge(view.substr(0, space), view.substr(space + 1), rank, place.item(i)));
    } else if (item.is_array() && item.array().size() == 2 && item.array()[0].is_string() &&
               item.array()[1].is_string()) {
      SX_TRY(
          add_merge(item.array()[0].as_string(), item.array()[1].as_string(), rank, place.item(i)));
    } else {
      return fail_in(place.item(i), Code::kInput, "expected a string or a pair of them, found {}",
                     item.kind_name());
    }
    ++rank;
  }
  return {};
}

Status BpeModel::add_merge(std::string_view left, std::string_view right, uint32_t rank,
                           const JsonPlace& place) {
  const int32_t a = vocab_.find(left);
  const int32_t b = vocab_.find(right);
  if (a < 0 || b < 0)
    return fail_in(place, Code::kInput, "expected tokens of the vocabulary, found {}",
                   quote_name(a < 0 ? left : right));
  // The right part's continuation prefix goes, whatever its first bytes are.
  if (right.size() < prefix_.size())
    return fail_in(place, Code::kInput, "expected a token that begins with {}, found {}",
                   quote_name(prefix_), quote_name(right));
  std::string joined(left);
  joined += right.substr(prefix_.size());
  const int32_t id = vocab_.find(joined);
  if (id < 0)
    return fail_in(place, Code::kInput,
                   "expected the merged token {} in the vocabulary, found none",
                   quote_name(joined));
  merges_.set(a, b, rank, id);
  return {};
}

int32_t BpeModel::id_of_char(std::string_view c, bool first, bool last, std::string& text) const {
  const bool with_prefix = !first && !prefix_.empty();
  const bool with_suffix = last && !suffix_.empty();
  if (!with_prefix && !with_suffix) {
    if (c.size() <= 2) {
      size_t at = 0;
      return small_[next_char(c, at)];
    }
    return vocab_.find(c);
  }
  text.assign(with_prefix ? prefix_ : "");
  text.append(c);
  if (with_suffix) text += suffix_;
  return vocab_.find(text);
}

bool BpeModel::push_bytes(std::string_view text, std::vector<Symbol>& symbols) const {
  if (bytes_.empty()) return false;
  for (const char c : text)
    if (bytes_[static_cast<uint8_t>(c)] < 0) return false;
  for (const char c : text) push_symbol(symbols, bytes_[static_cast<uint8_t>(c)]);
  return true;
}

Status BpeModel::start(std::string_view word, ModelScratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  bool pending = false;  // an unknown token that is still to be written
  size_t at = 0;
  while (at < word.size()) {
    const size_t n = char_bytes(word[at]);
    const std::string_view c = word.substr(at, n);
    const bool first = at == 0;
    at += n;
    const bool last = at == word.size();
    const int32_t id = id_of_char(c, first, last, scratch.text);
    if (id >= 0) {
      if (pending) push_symbol(symbols, unk_);
      pending = false;
      push_symbol(symbols, id);
      continue;
    }
    const bool decorated = (!first && !prefix_.empty()) || (last && !suffix_.empty());
    if (push_bytes(decorated ? std::string_view(scratch.text) : c, symbols)) continue;
    if (!has_unk_) continue;  // the package drops it, too
    if (unk_ < 0)
      return fail(Code::kInput,
                  "the character {} is not in the vocabulary, and neither is its unk_token {}",
                  quote_name(c), quote_name(unk_token_));
    if (pending && !fuse_unk_) push_symbol(symbols, unk_);
    pending = true;
  }
  if (pending) push_symbol(symbols, unk_);
  return {};
}

void BpeModel::merge_short(std::vector<Symbol>& symbols) const {
  // ids side by side, the rank of each pair beside its left one; no links needed.
  constexpr uint32_t kNone = ~uint32_t{0};
  size_t n = symbols.size();
  std::array<uint32_t, kShortWord> ranks;
  std::array<int32_t, kShortWord> joined;
  const auto rate = [&](size_t i) {
    const MergeTable::Entry* e =
        i + 1 < n ? merges_.find(symbols[i].id, symbols[i + 1].id) : nullptr;
    ranks[i] = e == nullptr ? kNone : e->rank;
    joined[i] = e == nullptr ? -1 : e->new_id;
  };
  for (size_t i = 0; i < n; ++i) rate(i);
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (n == 0 || ranks[best] == kNone) break;
    symbols[best].id = joined[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i].id = symbols[i + 1].id;
      ranks[i] = ranks[i + 1];
      joined[i] = joined[i + 1];
    }
    --n;
    rate(best);
    if (best > 0) rate(best - 1);
  }
  symbols.resize(n);
}

void BpeModel::merge_long(ModelScratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  // Rank above place in one number: the smallest is the lowest rank, then the leftmost.
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  const auto merge_at = [&](int32_t pos) -> const MergeTable::Entry* {
    const Symbol& left = symbols[static_cast<size_t>(pos)];
    if (left.next < 0) return nullptr;
    return merges_.find(left.id, symbols[static_cast<size_t>(left.next)].id);
  };
  const auto key = [](uint32_t rank, int32_t pos) {
    return (uint64_t{rank} << 32) | static_cast<uint32_t>(pos);
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i)
    if (const auto* m = merge_at(i)) heap.push_back(key(m->rank, i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](int32_t pos) {
    if (const auto* m = merge_at(pos)) {
      heap.push_back(key(m->rank, pos));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto pos = static_cast<int32_t>(static_cast<uint32_t>(top));
    Symbol& left = symbols[static_cast<size_t>(pos)];
    if (left.gone) continue;
    const MergeTable::Entry* m = merge_at(pos);  // an entry may be out of date
    if (m == nullptr || m->rank != top >> 32) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = m->new_id;
    right.gone = true;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = pos;
    if (left.prev >= 0) push(left.prev);
    push(pos);
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.gone; });
}

Status BpeModel::encode(std::string_view word, ModelScratch& scratch,
                        std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const int32_t id = vocab_.find(word); id >= 0) {
      ids.push_back(id);
      return {};
    }
  }
  SX_TRY(start(word, scratch));
  if (scratch.symbols.size() <= kShortWord)
    merge_short(scratch.symbols);
  else
    merge_long(scratch);
  for (const Symbol& s : scratch.symbols) ids.push_back(s.id);
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenModel>> load_bpe(FieldReader& fields) {
  auto model = std::make_unique<BpeModel>();
  SX_TRY(model->load(fields));
  return model;
}

}  // namespace sextant
