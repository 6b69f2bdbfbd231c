// Pages are handed out once, keep what was written, and come back.
#include "model/kv_cache.h"

#include <set>

#include <gtest/gtest.h>

namespace sextant {
namespace {

KvLayout layout() {
  KvLayout out;
  out.n_layers = 2;
  out.n_kv_heads = 3;
  out.head_dim = 4;
  out.dtype = DType::kF32;
  out.page_tokens = 8;
  return out;
}

TEST(KvCache, a_page_is_keys_and_values_of_every_layer) {
  EXPECT_EQ(layout().bytes_per_page(), 2 * 2 * 8 * 3 * 4 * 4);
  KvLayout bf16 = layout();
  bf16.dtype = DType::kBF16;
  EXPECT_EQ(bf16.bytes_per_page(), 2 * 2 * 8 * 3 * 4 * 2);
}

TEST(KvCache, positions_do_not_overlap_and_views_see_them) {
  KvPool pool(layout(), 5);
  KvSequence a(pool);
  KvSequence b(pool);
  ASSERT_TRUE(a.reserve(17));  // 3 pages
  ASSERT_TRUE(b.reserve(16));  // 2 pages
  EXPECT_EQ(pool.n_free(), 0);
  EXPECT_EQ(a.capacity(), 24);
  float mark = 0;
  std::set<void*> seen;
  for (KvSequence* sequence : {&a, &b})
    for (int64_t layer = 0; layer < 2; ++layer)
      for (int64_t pos = 0; pos < 16; ++pos)
        for (void* at : {sequence->k_at(layer, pos), sequence->v_at(layer, pos)}) {
          EXPECT_TRUE(seen.insert(at).second);
          for (int64_t i = 0; i < 12; ++i) static_cast<float*>(at)[i] = mark;
          mark += 1;
        }
  mark = 0;
  for (KvSequence* sequence : {&a, &b})
    for (int64_t layer = 0; layer < 2; ++layer) {
      const KvView view = sequence->view(layer);
      EXPECT_EQ(view.page_tokens, 8);
      for (int64_t pos = 0; pos < 16; ++pos)
        for (const void* const* pages : {view.k_pages, view.v_pages}) {
          const auto* row = static_cast<const float*>(pages[pos / 8]) + pos % 8 * 12;
          for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(row[i], mark);
          mark += 1;
        }
    }
}

TEST(KvCache, an_empty_pool_refuses_and_keeps_what_there_is) {
  KvPool pool(layout(), 2);
  KvSequence a(pool);
  ASSERT_TRUE(a.reserve(9));
  {
    KvSequence b(pool);
    EXPECT_FALSE(b.reserve(1));
    EXPECT_EQ(b.capacity(), 0);
  }
  EXPECT_FALSE(a.reserve(17));
  EXPECT_EQ(a.capacity(), 16);
  a.truncate(8);
  EXPECT_EQ(a.capacity(), 8);
  EXPECT_EQ(pool.n_free(), 1);
  {
    KvSequence b(pool);
    EXPECT_TRUE(b.reserve(8));
    EXPECT_EQ(pool.n_free(), 0);
  }
  EXPECT_EQ(pool.n_free(), 1);  // a sequence that dies gives its pages back
  EXPECT_TRUE(a.reserve(16));
}

}  // namespace
}  // namespace sextant
