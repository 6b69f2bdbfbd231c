// ByteTrie (tokenizer_trie.h).
#include "text/tokenizer_trie.h"

#include <utility>

namespace sextant {

size_t ByteTrie::slot(uint32_t key) const {
  const size_t mask = edges_.size() - 1;
  uint64_t hash = key * uint64_t{0x9E3779B97F4A7C15};
  hash ^= hash >> 31;
  size_t at = hash & mask;
  while (edges_[at].key != 0 && edges_[at].key != key) at = (at + 1) & mask;
  return at;
}

int32_t ByteTrie::child(int32_t node, uint8_t byte) const {
  const Edge& edge = edges_[slot(key_of(node, byte))];
  return edge.key == 0 ? -1 : edge.to;
}

int32_t ByteTrie::make_child(int32_t node, uint8_t byte) {
  if (values_.size() >= kMaxNodes) return -1;
  const auto fresh = static_cast<int32_t>(values_.size());
  values_.push_back(-1);
  if (node == 0) {
    root_[byte] = fresh;
    return fresh;
  }
  if (2 * (n_edges_ + 1) > edges_.size()) {
    std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(2 * edges_.size()));
    for (const Edge& edge : old)
      if (edge.key != 0) edges_[slot(edge.key)] = edge;
  }
  edges_[slot(key_of(node, byte))] = {key_of(node, byte), fresh};
  ++n_edges_;
  return fresh;
}

bool ByteTrie::add(std::string_view key, int32_t value) {
  int32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = node == 0 ? root_[byte] : child(node, byte);
    if (next < 0) next = make_child(node, byte);
    if (next < 0) return false;
    node = next;
  }
  if (node != 0) values_[static_cast<size_t>(node)] = value;
  return true;
}

}  // namespace sextant
