#include "engine/prefix_cache.h"

#include <algorithm>

namespace sextant {
namespace {

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  const auto end = std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin()).first;
  return end - a.begin();
}

}  // namespace

void PrefixCache::park(ParkedSequence sequence) {
  if (max_sequences_ <= 0 || sequence.kv == nullptr || sequence.ids.empty()) return;
  if (size() >= max_sequences_) sequences_.pop_front();
  sequences_.push_back(std::move(sequence));
}

ParkedSequence PrefixCache::take(std::span<const int32_t> prompt, int64_t max_tokens) {
  auto best = sequences_.end();
  int64_t longest = 0;
  for (auto it = sequences_.begin(); it != sequences_.end(); ++it) {
    const int64_t shared = std::min(common_prefix(it->ids, prompt), max_tokens);
    if (shared > longest) {
      longest = shared;
      best = it;
    }
  }
  if (best == sequences_.end()) return {};
  ParkedSequence taken = std::move(*best);
  sequences_.erase(best);
  taken.ids.resize(static_cast<size_t>(longest));
  taken.kv->truncate(longest);
  return taken;
}

bool PrefixCache::evict_oldest() {
  if (sequences_.empty()) return false;
  sequences_.pop_front();
  return true;
}

}  // namespace sextant
