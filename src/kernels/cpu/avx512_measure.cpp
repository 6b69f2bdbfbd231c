// What one core can do with 512-bit vectors, for measure.cpp and bench/: the float32 multiply-add
// and vdpbf16ps peaks in registers, and a read stream. Per-ISA code.
#include <immintrin.h>

#include "kernels/cpu/measure_isa.h"

namespace sextant::cpu {

double avx512_flops(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  const __m512 half = _mm512_set1_ps(0.5F);
  const __m512 one = _mm512_set1_ps(1.0F);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_fmadd_ps(sums[j], half, one);
  }
  for (int j = 1; j < kChains; ++j) sums[0] = _mm512_add_ps(sums[0], sums[j]);
  volatile float keep = _mm512_cvtss_f32(sums[0]);
  (void)keep;
  return static_cast<double>(rounds) * kChains * 16 * 2;
}

__attribute__((target("avx512bf16"))) double avx512_bf16_flops(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  const auto halves = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F00));
  const auto tiny = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3C00));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], halves, tiny);
  }
  for (int j = 1; j < kChains; ++j) sums[0] = _mm512_add_ps(sums[0], sums[j]);
  volatile float keep = _mm512_cvtss_f32(sums[0]);
  (void)keep;
  return static_cast<double>(rounds) * kChains * 32 * 2;
}

uint64_t avx512_read(const uint64_t* words, int64_t n) {
  __m512i sums[8];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t i = 0; i + 64 <= n; i += 64) {
#pragma GCC unroll 8
    for (int64_t j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(words + i + j * 8) + 4096, _MM_HINT_T0);
      sums[j] = _mm512_xor_si512(sums[j], _mm512_loadu_si512(words + i + j * 8));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sums[0]));
}

}  // namespace sextant::cpu
