// Every table's attention against ref with a derived bound, and exactly: a row's bits depend on its
// query, its keys and its position only, not on chunking, batching or threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/test_data.h"
#include "quant/bf16.h"

namespace sextant {
namespace {

// One sequence's cache in separate pages. Positions never written hold NaN: a table must not let
// keys outside a row's range near its result.
struct TestCache {
  DType dtype;
  int64_t width, page_tokens, n_pages;
  std::vector<std::vector<std::byte>> k_store, v_store;
  std::vector<const void*> k_pages, v_pages;

  TestCache(DType dtype_, int64_t n_kv_heads, int64_t head_dim, int64_t page_tokens_, int64_t n_pos)
      : dtype(dtype_),
        width(n_kv_heads * head_dim),
        page_tokens(page_tokens_),
        n_pages((n_pos + page_tokens_ - 1) / page_tokens_) {
    const int64_t bytes = page_tokens * width * (dtype == DType::kF32 ? 4 : 2);
    for (int64_t p = 0; p < n_pages; ++p) {
      for (auto* store : {&k_store, &v_store})
        store->emplace_back(static_cast<size_t>(bytes), std::byte{0xFF});
      k_pages.push_back(k_store.back().data());
      v_pages.push_back(v_store.back().data());
    }
  }
  void write(bool keys, int64_t pos, int64_t dim, float value) {
    std::byte* page = (keys ? k_store : v_store)[static_cast<size_t>(pos / page_tokens)].data();
    const int64_t at = pos % page_tokens * width + dim;
    if (dtype == DType::kF32)
      reinterpret_cast<float*>(page)[at] = value;
    else
      reinterpret_cast<uint16_t*>(page)[at] = f32_to_bf16(value);
  }
  void fill(int64_t pos_begin, int64_t pos_end, uint64_t seed) {
    Random random(seed);
    for (int64_t pos = pos_begin; pos < pos_end; ++pos) {
      for (int64_t d = 0; d < width; ++d) {
        write(true, pos, d, random.normalish());
        write(false, pos, d, random.normalish());
      }
    }
  }
  KvView view() const { return {k_pages.data(), v_pages.data(), dtype, page_tokens}; }
};

struct Case {
  int64_t n_heads, n_kv_heads, head_dim, pos_begin, n_rows, window, page_tokens;
};
constexpr Case kCases[] = {
    {1, 1, 8, 0, 1, 0, 16},     {1, 1, 1, 3, 2, 0, 16},    {2, 1, 24, 0, 5, 0, 4},
    {9, 3, 64, 0, 37, 0, 16},   {9, 3, 64, 200, 1, 0, 16}, {4, 4, 40, 63, 3, 0, 16},
    {8, 2, 128, 95, 2, 0, 32},  {6, 2, 20, 31, 34, 7, 16}, {4, 1, 80, 130, 9, 100, 16},
    {2, 2, 96, 64, 65, 64, 16}, {14, 2, 64, 0, 70, 1, 16}, {3, 3, 13, 90, 4, 33, 5},
    {1, 1, 256, 40, 3, 0, 16},  {8, 1, 64, 700, 3, 0, 16}};

constexpr double kExpError = 0x1p-21;  // relative, what every table's exp states at most

// Scores are sums of head_dim products and a scale: off by at most e = (head_dim + 2) u scale
// sum |q k|, so weights by a factor of exp(2 e) to either side (one e for the score, one for the
// maximum). A table that goes block by block, blocks of 8 keys or more, multiplies by one
// exponential a block. The weighted sum and the sum of weights have at most n + n/8 + 2 roundings.
// Their quotient is off by at most twice all that, times the weighted mean of |v|.
double bound(double score_error, double mean_abs_v, int64_t n_keys) {
  const double blocks = static_cast<double>(n_keys / 8 + 2);
  const double weight = std::expm1(2 * score_error) + (blocks + 1) * (kExpError + 0x1p-24);
  const double sums = (static_cast<double>(n_keys) + blocks + 2) * 0x1p-24;
  return 2.02 * (weight + sums) * mean_abs_v + 0x1p-126;
}

float cached(const TestCache& cache, bool keys, int64_t pos, int64_t dim) {
  const void* page =
      (keys ? cache.k_pages : cache.v_pages)[static_cast<size_t>(pos / cache.page_tokens)];
  const int64_t at = pos % cache.page_tokens * cache.width + dim;
  return cache.dtype == DType::kF32 ? static_cast<const float*>(page)[at]
                                    : bf16_to_f32(static_cast<const uint16_t*>(page)[at]);
}

struct RowBound {
  double score_error = 0.0;
  double max_v = 0.0;
};

RowBound row_bound(const TestCache& cache, std::span<const float> q, const AttentionParams& p,
                   int64_t head, int64_t pos) {
  const int64_t kv_dim = head / (p.n_heads / p.n_kv_heads) * p.head_dim;
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, pos - p.window + 1) : 0;
  RowBound row;
  for (int64_t at = first; at <= pos; ++at) {
    double sum = 0.0;
    for (int64_t d = 0; d < p.head_dim; ++d) {
      sum += std::abs(double{q[static_cast<size_t>(head * p.head_dim + d)]} *
                      double{cached(cache, true, at, kv_dim + d)});
      row.max_v = std::max(row.max_v, std::abs(double{cached(cache, false, at, kv_dim + d)}));
    }
    row.score_error = std::max(
        row.score_error, static_cast<double>(p.head_dim + 2) * 0x1p-24 * double{p.scale} * sum);
  }
  return row;
}

GapMat run_attention(const Ops& ops, Mat<const float> q, std::span<const AttentionSeq> seqs,
                     const AttentionParams& params, ThreadPool& pool) {
  GapMat out(q.rows, q.cols);
  ops.attention(q, seqs, params, out.view, pool);
  EXPECT_TRUE(out.gaps_intact()) << ops.name;
  return out;
}

TEST(Attention, EveryTableAgreesWithRef) {
  ThreadPool pool(2);
  uint64_t seed = 1;
  for (const Ops* ops : available_ops()) {
    for (const Case& c : kCases) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const AttentionParams params{c.n_heads, c.n_kv_heads, c.head_dim, 0.25F, c.window};
        const int64_t n_pos = c.pos_begin + c.n_rows;
        TestCache cache(dtype, c.n_kv_heads, c.head_dim, c.page_tokens, n_pos + 3);
        const int64_t first =
            c.window > 0 ? std::max<int64_t>(0, c.pos_begin - c.window + 1) : int64_t{0};
        cache.fill(first, n_pos, ++seed);  // NaN before the window and after the last row
        const GapMat q = random_mat(c.n_rows, c.n_heads * c.head_dim, ++seed);
        const AttentionSeq seq{0, c.n_rows, c.pos_begin, cache.view()};
        const GapMat want = run_attention(*available_ops().back(), q.view, {&seq, 1}, params, pool);
        const GapMat out = run_attention(*ops, q.view, {&seq, 1}, params, pool);
        for (int64_t i = 0; i < c.n_rows; ++i) {
          const int64_t pos = c.pos_begin + i;
          const int64_t n_keys = c.window > 0 ? std::min(c.window, pos + 1) : pos + 1;
          for (int64_t head = 0; head < c.n_heads; ++head) {
            const RowBound row = row_bound(cache, q.view.row(i), params, head, pos);
            const double limit = bound(row.score_error, row.max_v, n_keys);
            for (int64_t d = 0; d < c.head_dim; ++d) {
              const int64_t col = head * c.head_dim + d;
              ASSERT_LE(std::abs(double{out.view.at(i, col)} - double{want.view.at(i, col)}), limit)
                  << ops->name << " heads " << c.n_heads << " dim " << c.head_dim << " row " << i
                  << " pos " << pos << " column " << col;
            }
          }
        }
      }
    }
  }
}

// Row by row, in chunks and at once, with 1, 2 and 5 threads: the same bits.
TEST(Attention, RowsAreInvariant) {
  for (const Ops* ops : available_ops()) {
    for (const Case& c : {Case{9, 3, 64, 29, 75, 0, 16}, Case{4, 2, 20, 0, 80, 33, 7}}) {
      const AttentionParams params{c.n_heads, c.n_kv_heads, c.head_dim, 0.125F, c.window};
      TestCache cache(DType::kBF16, c.n_kv_heads, c.head_dim, c.page_tokens,
                      c.pos_begin + c.n_rows);
      cache.fill(0, c.pos_begin + c.n_rows, 11);
      const GapMat q = random_mat(c.n_rows, c.n_heads * c.head_dim, 12);
      ThreadPool one(1);
      const AttentionSeq all{0, c.n_rows, c.pos_begin, cache.view()};
      const GapMat want = run_attention(*ops, q.view, {&all, 1}, params, one);
      for (const int n_threads : {1, 2, 5}) {
        ThreadPool pool(n_threads);
        for (const int64_t chunk : {1, 2, 3, 7, 16, 31, 64, 75}) {
          for (int64_t begin = 0; begin < c.n_rows; begin += chunk) {
            const int64_t n = std::min(chunk, c.n_rows - begin);
            const AttentionSeq seq{0, n, c.pos_begin + begin, cache.view()};
            const GapMat out =
                run_attention(*ops, q.view.row_range(begin, n), {&seq, 1}, params, pool);
            for (int64_t i = 0; i < n; ++i)
              ASSERT_TRUE(same_bits(out.view.row(i), want.view.row(begin + i)))
                  << ops->name << " chunk " << chunk << " row " << begin + i << " threads "
                  << n_threads;
          }
        }
      }
    }
  }
}

// A batch of sequences, in any order of rows, gives each what it gets alone; out may be q.
TEST(Attention, BatchEqualsSingleAndInPlace) {
  ThreadPool pool(2);
  const AttentionParams params{6, 2, 32, 0.2F, 0};
  TestCache a(DType::kF32, 2, 32, 16, 60), b(DType::kF32, 2, 32, 16, 60);
  a.fill(0, 50, 21);
  b.fill(0, 20, 22);
  GapMat q = random_mat(5, 6 * 32, 23);
  const std::vector<AttentionSeq> both = {{3, 2, 48, a.view()}, {0, 3, 17, b.view()}};
  for (const Ops* ops : available_ops()) {
    const GapMat out = run_attention(*ops, q.view, both, params, pool);
    const AttentionSeq only_a{0, 2, 48, a.view()};
    const GapMat out_a = run_attention(*ops, q.view.row_range(3, 2), {&only_a, 1}, params, pool);
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_TRUE(same_bits(out_a.view.row(i), out.view.row(3 + i))) << ops->name;
    GapMat in_place = random_mat(5, 6 * 32, 23);
    ops->attention(in_place.view, both, params, in_place.view, pool);
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_TRUE(same_bits(in_place.view.row(i), out.view.row(i))) << ops->name;
  }
}

// NaN in one query head, one key or one value reaches the results that use it, no other.
TEST(Attention, NanReachesItsRowsOnly) {
  ThreadPool pool(2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const AttentionParams params{4, 2, 16, 0.3F, 0};
  for (const Ops* ops : available_ops()) {
    for (const bool in_key : {true, false}) {
      TestCache cache(DType::kF32, 2, 16, 16, 80);
      cache.fill(0, 80, 31);
      GapMat q = random_mat(40, 64, 32);
      const AttentionSeq seq{0, 40, 40, cache.view()};
      const GapMat clean = run_attention(*ops, q.view, {&seq, 1}, params, pool);
      cache.write(in_key, 61, 16 + 5, nan);  // key head 1: query heads 2 and 3, rows from pos 61
      q.view.at(7, 3) = nan;                 // row 7, head 0
      const GapMat out = run_attention(*ops, q.view, {&seq, 1}, params, pool);
      for (int64_t i = 0; i < 40; ++i) {
        for (int64_t col = 0; col < 64; ++col) {
          const bool by_cache = col >= 32 && 40 + i >= 61 && (in_key || col % 16 == 5);
          const bool by_query = i == 7 && col < 16;
          if (by_cache || by_query)
            ASSERT_TRUE(std::isnan(out.view.at(i, col))) << ops->name << " " << i << " " << col;
          else
            ASSERT_EQ(out.view.at(i, col), clean.view.at(i, col))
                << ops->name << " " << i << " " << col;
        }
      }
    }
  }
}

// One score far above the others: its value, no overflow anywhere.
TEST(Attention, LargeScores) {
  ThreadPool pool(1);
  const AttentionParams params{1, 1, 8, 1.0F, 0};
  for (const Ops* ops : available_ops()) {
    TestCache cache(DType::kF32, 1, 8, 16, 100);
    cache.fill(0, 100, 41);
    for (int64_t d = 0; d < 8; ++d) cache.write(true, 50, d, 1e4F);
    GapMat q(1, 8);
    for (float& value : q.view.row(0)) value = 1e3F;
    const AttentionSeq seq{0, 1, 99, cache.view()};
    const GapMat out = run_attention(*ops, q.view, {&seq, 1}, params, pool);
    for (int64_t d = 0; d < 8; ++d)
      EXPECT_EQ(out.view.at(0, d), cached(cache, false, 50, d)) << ops->name;
  }
}

}  // namespace
}  // namespace sextant
