// Read stream and multiply-add peak with 256-bit vectors, for measure.cpp.
#include <immintrin.h>

#include "kernels/cpu/measure_isa.h"

namespace sextant::cpu {

uint64_t avx2_read(const uint64_t* words, int64_t n) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t i = 0; i + 64 <= n; i += 64) {
    const __m256i* p = reinterpret_cast<const __m256i*>(words + i);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 64, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 128, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 192, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 256, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 320, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 384, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + 4096 + 448, _MM_HINT_T0);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(p + 2 * j));
      sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(p + 2 * j + 1));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
  const __m128i half =
      _mm_xor_si128(_mm256_castsi256_si128(sums[0]), _mm256_extracti128_si256(sums[0], 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(half)) ^
         static_cast<uint64_t>(_mm_extract_epi64(half, 1));
}

double avx2_flops(int64_t rounds) {
  constexpr int kChains = 12;
  __m256 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm256_set1_ps(static_cast<float>(j));
  const __m256 half = _mm256_set1_ps(0.5F);
  const __m256 one = _mm256_set1_ps(1.0F);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = _mm256_fmadd_ps(sums[j], half, one);
  }
  for (int j = 1; j < kChains; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
  volatile float keep = _mm256_cvtss_f32(sums[0]);
  (void)keep;
  return static_cast<double>(rounds) * kChains * 8 * 2;
}

}  // namespace sextant::cpu
