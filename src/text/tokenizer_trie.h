// A trie over bytes with a value at the end of each key: the matcher behind added tokens and the
// Unigram model. Edges lie in one open-addressed table, the root's in an array, so a million keys
// cost what their distinct prefixes cost. Bounded in nodes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sextant {

class ByteTrie {
 public:
  static constexpr size_t kMaxNodes = size_t{1} << 23;

  ByteTrie() { root_.fill(-1); }

  // The last value of a key stays. False where the trie is full.
  bool add(std::string_view key, int32_t value);
  bool empty() const { return values_.size() == 1; }

  // Calls found(end, value) for every key that stands in text at `at`, shorter ones first.
  template <class F>
  void walk(std::string_view text, size_t at, F&& found) const {
    int32_t node = root_[static_cast<uint8_t>(text[at])];
    while (node >= 0) {
      ++at;
      if (const int32_t value = values_[static_cast<size_t>(node)]; value >= 0) found(at, value);
      if (at == text.size()) return;
      node = child(node, static_cast<uint8_t>(text[at]));
    }
  }

  // Whether a key begins with this byte.
  bool begins(char c) const { return root_[static_cast<uint8_t>(c)] >= 0; }

 private:
  struct Edge {
    uint32_t key = 0;  // node and byte; 0 is free, for the root's edges are elsewhere
    int32_t to = -1;
  };
  static uint32_t key_of(int32_t node, uint8_t byte) {
    return (static_cast<uint32_t>(node) << 8) | byte;
  }
  size_t slot(uint32_t key) const;
  int32_t child(int32_t node, uint8_t byte) const;
  int32_t make_child(int32_t node, uint8_t byte);

  std::array<int32_t, 256> root_;
  std::vector<int32_t> values_ = {-1};  // by node; 0 is the root
  std::vector<Edge> edges_ = std::vector<Edge>(64);
  size_t n_edges_ = 0;
};

}  // namespace sextant
