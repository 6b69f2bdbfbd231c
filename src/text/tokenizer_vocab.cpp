// Vocab (tokenizer_vocab.h).
#include "text/tokenizer_vocab.h"

#include <algorithm>
#include <functional>

#include "io/quote.h"

namespace sextant {

size_t Vocab::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(token)&mask;
  while (slots_[slot] >= 0 && this->token(slots_[slot]) != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocab::reserve(size_t n_tokens) {
  n_tokens = std::min(n_tokens, static_cast<size_t>(kMaxTokenId) + 1);
  size_t size = 16;
  while (size < 2 * n_tokens) size *= 2;
  if (size <= slots_.size()) return;
  slots_.assign(size, -1);
  for (int32_t id = 0; id < end_id(); ++id)
    if (has(id)) slots_[slot_of(token(id))] = id;
}

Status Vocab::add(std::string_view token, int64_t id, const JsonPlace& place) {
  if (id < 0 || id > kMaxTokenId)
    return fail_in(place, Code::kInput, "expected an id from 0 to {} for {}, found {}", kMaxTokenId,
                   quote_name(token), id);
  if (token.size() > kMaxTokenBytes || arena_.size() + token.size() > kMaxVocabBytes)
    return fail_in(place, Code::kInput,
                   "expected tokens of at most {} bytes and {} together, found {} bytes in {}",
                   kMaxTokenBytes, kMaxVocabBytes, token.size(), quote_name(token, 40));
  const auto short_id = static_cast<int32_t>(id);
  if (has(short_id))
    return fail_in(place, Code::kInput, "expected one token an id, found {} and {} with id {}",
                   quote_name(this->token(short_id)), quote_name(token), id);
  reserve(count_ + 1);
  const size_t slot = slot_of(token);
  if (slots_[slot] >= 0)
    return fail_in(place, Code::kInput, "expected each token once, found {} with ids {} and {}",
                   quote_name(token), slots_[slot], id);
  if (short_id >= end_id()) spans_.resize(static_cast<size_t>(short_id) + 1);
  spans_[static_cast<size_t>(short_id)] = {static_cast<uint32_t>(arena_.size()),
                                           static_cast<int32_t>(token.size())};
  arena_ += token;
  slots_[slot] = short_id;
  ++count_;
  return {};
}

int32_t Vocab::find(std::string_view token) const {
  return slots_.empty() ? -1 : slots_[slot_of(token)];
}

bool Vocab::has(int32_t id) const {
  return id >= 0 && id < end_id() && spans_[static_cast<size_t>(id)].length >= 0;
}

std::string_view Vocab::token(int32_t id) const {
  if (!has(id)) return {};
  const Span& span = spans_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(span.begin, static_cast<size_t>(span.length));
}

}  // namespace sextant
