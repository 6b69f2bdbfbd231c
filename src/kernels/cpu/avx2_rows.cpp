// AVX2 norm, rope, SwiGLU, addition, BF16 conversion: one row a call. Sums in a fixed order of
// eight lanes times four; ends by masked loads, so that nothing past a row is touched.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"

namespace sextant::cpu {
namespace {

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  __m256 sums[4];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256 v = _mm256_loadu_ps(x + i + 8 * j);
      sums[j] = _mm256_fmadd_ps(v, v, sums[j]);
    }
  }
  for (; i < n; i += 8) {
    const __m256 v = load_up_to(x + i, n - i);
    sums[0] = _mm256_fmadd_ps(v, v, sums[0]);
  }
  const float total =
      sum8(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
  const __m128 mean = _mm_set_ss(total / static_cast<float>(n) + eps);
  const __m256 scale = _mm256_set1_ps(1.0F / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
  for (i = 0; i < n; i += 8) {
    const __m256 v = _mm256_mul_ps(load_up_to(x + i, n - i), scale);
    store_up_to(y + i, n - i, _mm256_mul_ps(v, load_up_to(weight + i, n - i)));
  }
}

void rope(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i += 8) {
    const int64_t left = half - i;
    const __m256 a = load_up_to(x + i, left);
    const __m256 b = load_up_to(x + half + i, left);
    const __m256 c = load_up_to(cos + i, left);
    const __m256 s = load_up_to(sin + i, left);
    store_up_to(x + i, left, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    store_up_to(x + half + i, left, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 sign = _mm256_set1_ps(-0.0F);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 g = load_up_to(gate + i, n - i);
    const __m256 e = exp8(_mm256_xor_ps(g, sign));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    store_up_to(out + i, n - i, _mm256_mul_ps(silu, load_up_to(up + i, n - i)));
  }
}

void add(float* x, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  for (; i < n; ++i) x[i] += y[i];
}

void widen_bf16(const uint16_t* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)));
  }
  for (; i < n; ++i)
    _mm_store_ss(out + i, _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(x[i]) << 16)));
}

void narrow_bf16(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i r = _mm256_srli_epi32(round_bf16(_mm256_loadu_ps(x + i)), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
  }
  for (; i < n; ++i) {
    const __m256i r = round_bf16(_mm256_broadcast_ss(x + i));
    out[i] = static_cast<uint16_t>(
        static_cast<uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(r))) >> 16);
  }
}

}  // namespace

void avx2_fill_rows(Isa* isa) {
  isa->rms_norm = rms_norm;
  isa->rope = rope;
  isa->silu_mul = silu_mul;
  isa->add = add;
  isa->widen_bf16 = widen_bf16;
  isa->narrow_bf16 = narrow_bf16;
}

}  // namespace sextant::cpu
