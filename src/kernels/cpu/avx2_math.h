// Vector pieces shared by the AVX2 files. Everything has internal linkage: this header is for files
// compiled with AVX2 flags only.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sextant::cpu {
namespace {

// e^x within 2^-22 relative (Taylor of degree 7 on |r| <= ln2/2: truncation 2^-27, the rest is
// rounding). Below -87.3, where the result would be subnormal, 0; above 88.73 infinity; NaN stays:
// min and max return their second operand when one is NaN.
[[gnu::always_inline]] inline __m256 exp8(__m256 x) {
  const __m256 low = _mm256_set1_ps(-87.3F);
  const __m256 clamped = _mm256_min_ps(_mm256_set1_ps(89.0F), _mm256_max_ps(low, x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(0x1.715476p+0F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln2 in two parts: n * 0x1.62e4p-1 is exact for |n| < 2^9.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1F), clamped);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20F), r);
  __m256 p = _mm256_set1_ps(1.0F / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  // 2^n as two factors, so that n = 128 does not become infinity before the product.
  const __m256i i = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(i, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
  p = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
  return _mm256_and_ps(p, _mm256_cmp_ps(x, low, _CMP_NLT_UQ));
}

// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) of the lanes, as hadd pairs them.
[[gnu::always_inline]] inline float sum8(__m256 v) {
  const __m256 pairs = _mm256_hadd_ps(v, v);
  const __m256 quads = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
}

[[gnu::always_inline]] inline float max8(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

// All ones in the first n of eight lanes.
[[gnu::always_inline]] inline __m256i first_lanes(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

// The first n floats of p, or all eight; masked only at an end: masked stores are slow on some
// processors.
[[gnu::always_inline]] inline __m256 load_up_to(const float* p, int64_t n) {
  return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes(n));
}
[[gnu::always_inline]] inline void store_up_to(float* p, int64_t n, __m256 v) {
  if (n >= 8)
    _mm256_storeu_ps(p, v);
  else
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

// To BF16, nearest even, in the upper halves of the lanes; a NaN keeps its upper half and becomes
// quiet.
[[gnu::always_inline]] inline __m256i round_bf16(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256i r = _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(nan));
  return _mm256_and_si256(r, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U)));
}

}  // namespace
}  // namespace sextant::cpu
