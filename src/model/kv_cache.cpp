// Implements kv_cache.h. One block of storage, page-major: page p holds for every layer its keys
// [page_tokens, n_kv_heads, head_dim], then its values.
#include "model/kv_cache.h"

#include "base/check.h"
#include "base/checked.h"

namespace sextant {
namespace {

int64_t token_bytes(const KvLayout& layout) {
  return layout.n_kv_heads * layout.head_dim * dtype_bits(layout.dtype) / 8;
}

// Where the keys of one layer of one page begin; its values follow half_bytes later.
int64_t half_bytes(const KvLayout& layout) { return layout.page_tokens * token_bytes(layout); }

}  // namespace

int64_t KvLayout::bytes_per_page() const { return n_layers * 2 * half_bytes(*this); }

KvPool::KvPool(const KvLayout& layout, int64_t n_pages)
    : layout_(layout), n_pages_(n_pages), storage_(n_pages * layout.bytes_per_page()) {
  SX_CHECK(layout.dtype == DType::kF32 || layout.dtype == DType::kBF16, "KV cache of {}",
           dtype_name(layout.dtype));
  SX_CHECK(layout.page_tokens > 0 && n_pages >= 0, "{} pages of {} tokens", n_pages,
           layout.page_tokens);
  free_.reserve(static_cast<size_t>(n_pages));
  for (int64_t p = n_pages - 1; p >= 0; --p) free_.push_back(narrow<int32_t>(p));
}

// The lists of pages grow to the pool's size once, here, so that a step allocates nothing.
KvSequence::KvSequence(KvPool& pool) : pool_(&pool) {
  const auto n_pages = static_cast<size_t>(pool.n_pages());
  const auto n_layers = static_cast<size_t>(pool.layout().n_layers);
  pages_.reserve(n_pages);
  k_pages_.resize(n_layers);
  v_pages_.resize(n_layers);
  for (size_t layer = 0; layer < n_layers; ++layer) {
    k_pages_[layer].reserve(n_pages);
    v_pages_[layer].reserve(n_pages);
  }
}

KvSequence::~KvSequence() { truncate(0); }

bool KvSequence::reserve(int64_t n_tokens) {
  const KvLayout& at = layout();
  const int64_t needed = ceil_div(n_tokens, at.page_tokens);
  const int64_t more = needed - static_cast<int64_t>(pages_.size());
  if (more <= 0) return true;
  if (more > pool_->n_free()) return false;
  for (int64_t i = 0; i < more; ++i) {
    const int32_t page = pool_->free_.back();
    pool_->free_.pop_back();
    pages_.push_back(page);
    const std::byte* base = pool_->storage_.data() + page * at.bytes_per_page();
    for (size_t layer = 0; layer < k_pages_.size(); ++layer) {
      k_pages_[layer].push_back(base);
      v_pages_[layer].push_back(base + half_bytes(at));
      base += 2 * half_bytes(at);
    }
  }
  return true;
}

void KvSequence::truncate(int64_t n_tokens) {
  const auto keep = static_cast<size_t>(ceil_div(n_tokens, layout().page_tokens));
  while (pages_.size() > keep) {
    pool_->free_.push_back(pages_.back());
    pages_.pop_back();
    for (size_t layer = 0; layer < k_pages_.size(); ++layer) {
      k_pages_[layer].pop_back();
      v_pages_[layer].pop_back();
    }
  }
}

int64_t KvSequence::capacity() const {
  return static_cast<int64_t>(pages_.size()) * layout().page_tokens;
}

KvView KvSequence::view(int64_t layer) const {
  const auto l = static_cast<size_t>(layer - layout().first_layer);
  return {k_pages_[l].data(), v_pages_[l].data(), layout().dtype, layout().page_tokens};
}

void* KvSequence::k_at(int64_t layer, int64_t pos) {
  const KvLayout& at = layout();
  layer -= at.first_layer;
  SX_CHECK(layer >= 0 && layer < at.n_layers && pos >= 0 && pos < capacity(),
           "KV position {} of layer {} with room for {}", pos, layer, capacity());
  std::byte* base = pool_->storage_.data() +
                    pages_[static_cast<size_t>(pos / at.page_tokens)] * at.bytes_per_page();
  return base + layer * 2 * half_bytes(at) + pos % at.page_tokens * token_bytes(at);
}

void* KvSequence::v_at(int64_t layer, int64_t pos) {
  return static_cast<std::byte*>(k_at(layer, pos)) + half_bytes(layout());
}

const KvLayout& KvSequence::layout() const { return pool_->layout(); }

}  // namespace sextant
