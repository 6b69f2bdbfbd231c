// AVX2 attention over one block of keys: scores, online softmax (Milakov & Gimelshein 2018; blocks
// as in FlashAttention, Dao et al. 2022), weighted values. Every (row, key) dot product is one
// chain of eight lanes along head_dim and one fixed sum of the lanes; every output is one chain
// along the keys of the block. Rows go in pairs for speed only: a row's bits do not depend on its
// neighbor.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"

namespace sextant::cpu {
namespace {

// Sums of the lanes of four vectors, in the order of sum8.
[[gnu::always_inline]] inline __m128 sum8x4(const __m256* v) {
  const __m256 quads = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}

// Scores of R consecutive rows with keys [begin, end), multiples of 4.
template <int R>
void score_rows(const AttendArgs& args, int64_t row, int64_t begin, int64_t end) {
  const int64_t dim = args.dim_padded;
  const float* q = args.q + row * dim;
  const __m128 scale = _mm_set1_ps(args.scale);
  for (int64_t j = begin; j < end; j += 4) {
    const float* key = args.keys + j * dim;
    __m256 sums[R][4];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[r][i] = _mm256_setzero_ps();
    }
    for (int64_t d = 0; d < dim; d += 8) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m256 k = _mm256_load_ps(key + i * dim + d);
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r)
          sums[r][i] = _mm256_fmadd_ps(_mm256_load_ps(q + r * dim + d), k, sums[r][i]);
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
      _mm_storeu_ps(args.scores + (row + r) * kKeyBlock + j, _mm_mul_ps(sum8x4(sums[r]), scale));
  }
}

// Scores of one row to weights; running maximum and sum moved on. Returns what earlier values are
// to be multiplied by.
float weigh_row(const AttendArgs& args, int64_t row) {
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  const __m256 lowest = _mm256_sub_ps(_mm256_setzero_ps(), infinity);
  const __m256i begin = _mm256_set1_epi32(args.begin[row] - 1);
  const __m256i end = _mm256_set1_epi32(args.end[row]);
  float* scores = args.scores + row * kKeyBlock;
  __m256 s[4];
  __m256 largest = lowest;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i key =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * i));
    const __m256i valid =
        _mm256_and_si256(_mm256_cmpgt_epi32(key, begin), _mm256_cmpgt_epi32(end, key));
    s[i] = _mm256_blendv_ps(lowest, _mm256_loadu_ps(scores + 8 * i), _mm256_castsi256_ps(valid));
    largest = _mm256_max_ps(largest, s[i]);
  }
  const float before = args.max[row];
  const float block_max = max8(largest);
  const float now = block_max > before ? block_max : before;
  // With nothing but -inf so far, exp(-inf - -inf) must not become NaN.
  const float base = now == -__builtin_inff() ? 0.0F : now;
  const __m256 base8 = _mm256_set1_ps(base);
  __m256 total = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256 p = exp8(_mm256_sub_ps(s[i], base8));
    _mm256_storeu_ps(scores + 8 * i, p);
    total = _mm256_add_ps(total, p);
  }
  const float correction = _mm256_cvtss_f32(exp8(_mm256_set1_ps(before - base)));
  args.max[row] = now;
  args.sum[row] = args.sum[row] * correction + sum8(total);
  return correction;
}

// out of R rows with the same keys [begin, end): V vectors of head_dim from d on.
template <int R, int V>
[[gnu::always_inline]] inline void add_values(const AttendArgs& args, int64_t row, int64_t d,
                                              const float* corrections) {
  const int64_t dim = args.dim_padded;
  __m256 sums[R][V];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    const __m256 correction = _mm256_set1_ps(corrections[r]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      sums[r][v] =
          _mm256_mul_ps(_mm256_load_ps(args.out + (row + r) * dim + d + 8 * v), correction);
  }
  const float* p = args.scores + row * kKeyBlock;
  for (int64_t j = args.begin[row]; j < args.end[row]; ++j) {
    const float* value = args.values + j * dim + d;
    __m256 weights[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) weights[r] = _mm256_broadcast_ss(p + r * kKeyBlock + j);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const __m256 x = _mm256_load_ps(value + 8 * v);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) sums[r][v] = _mm256_fmadd_ps(weights[r], x, sums[r][v]);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm256_store_ps(args.out + (row + r) * dim + d + 8 * v, sums[r][v]);
  }
}

template <int R>
void add_all_values(const AttendArgs& args, int64_t row, const float* corrections) {
  int64_t d = 0;
  for (; d + 32 <= args.dim_padded; d += 32) add_values<R, 4>(args, row, d, corrections);
  for (; d < args.dim_padded; d += 8) add_values<R, 1>(args, row, d, corrections);
}

void attend(const AttendArgs& args) {
  for (int64_t row = 0; row < args.n_rows;) {
    const bool pair = row + 1 < args.n_rows && args.begin[row] == args.begin[row + 1] &&
                      args.end[row] == args.end[row + 1];
    const int64_t n = pair ? 2 : 1;
    const int64_t begin = args.begin[row] / 4 * 4;
    const int64_t end = (args.end[row] + 3) / 4 * 4;
    if (args.begin[row] < args.end[row]) {
      float corrections[2] = {0.0F, 0.0F};
      if (pair)
        score_rows<2>(args, row, begin, end);
      else
        score_rows<1>(args, row, begin, end);
      for (int64_t r = 0; r < n; ++r) corrections[r] = weigh_row(args, row + r);
      if (pair)
        add_all_values<2>(args, row, corrections);
      else
        add_all_values<1>(args, row, corrections);
    }
    row += n;
  }
}

}  // namespace

void avx2_fill_attention(Isa* isa) { isa->attend = attend; }

}  // namespace sextant::cpu
