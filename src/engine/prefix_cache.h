// Finished sequences whose keys and values stay, so that the next turn of a conversation prefills
// only what is new. A prompt takes over the sequence that it shares the longest prefix of ids with;
// the rest of that sequence is forgotten. The least recently used goes first when pages are needed.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "model/kv_cache.h"

namespace sextant {

struct ParkedSequence {
  std::unique_ptr<KvSequence> kv;
  std::vector<int32_t> ids;  // all of them are in kv
};

class PrefixCache {
 public:
  explicit PrefixCache(int64_t max_sequences) : max_sequences_(max_sequences) {}

  void park(ParkedSequence sequence);
  // The sequence with the longest common prefix, cut down to it and to at most max_tokens ids; its
  // kv is empty where nothing is shared.
  ParkedSequence take(std::span<const int32_t> prompt, int64_t max_tokens);
  bool evict_oldest();  // false when there is none
  void clear() { sequences_.clear(); }
  int64_t size() const { return static_cast<int64_t>(sequences_.size()); }

 private:
  int64_t max_sequences_;
  std::list<ParkedSequence> sequences_;  // least recently used first
};

}  // namespace sextant
