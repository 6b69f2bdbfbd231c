// Paged key/value storage. A KvPool owns pages of page_tokens positions over all layers; a
// KvSequence is a list of its pages. Pages are handed out and given back by the engine thread only;
// nothing is allocated after the pool is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "quant/dtype.h"

namespace sextant {

struct KvLayout {
  int64_t n_layers = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kBF16;
  int64_t page_tokens = 16;
  int64_t first_layer = 0;  // layers [first_layer, first_layer + n_layers) have pages

  int64_t bytes_per_page() const;  // all layers, keys and values
};

class KvPool;

class KvSequence {
 public:
  explicit KvSequence(KvPool& pool);
  ~KvSequence();
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;

  // Pages for positions [0, n_tokens); false when the pool is empty (the sequence keeps what it
  // has).
  [[nodiscard]] bool reserve(int64_t n_tokens);
  // Forgets positions from n_tokens on; pages past them go back.
  void truncate(int64_t n_tokens);
  int64_t capacity() const;
  KvView view(int64_t layer) const;
  // Where the keys and values of one position of one layer are written: [n_kv_heads * head_dim] of
  // layout().dtype each.
  void* k_at(int64_t layer, int64_t pos);
  void* v_at(int64_t layer, int64_t pos);
  const KvLayout& layout() const;

 private:
  KvPool* pool_;
  std::vector<int32_t> pages_;
  std::vector<std::vector<const void*>> k_pages_;  // [layer][page]
  std::vector<std::vector<const void*>> v_pages_;
};

class KvPool {
 public:
  KvPool(const KvLayout& layout, int64_t n_pages);
  const KvLayout& layout() const { return layout_; }
  int64_t n_pages() const { return n_pages_; }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  friend class KvSequence;
  KvLayout layout_;
  int64_t n_pages_;
  AlignedBuffer storage_;
  std::vector<int32_t> free_;
};

}  // namespace sextant
