// count_codes and count_bytes for AVX2.
#include <immintrin.h>

#include "quant/count_codes_vec.h"

namespace sextant {
namespace {

struct Avx2 {
  using V = __m256i;
  static constexpr int64_t kBytes = 32;

  static V load(const void* p) { return _mm256_loadu_si256(static_cast<const V*>(p)); }
  static void store(void* p, V v) { _mm256_storeu_si256(static_cast<V*>(p), v); }
  static V zero() { return _mm256_setzero_si256(); }
  static V bytes(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
  static V shuffle(V table, V index) { return _mm256_shuffle_epi8(table, index); }
  static V and_(V a, V b) { return _mm256_and_si256(a, b); }
  static V xor_(V a, V b) { return _mm256_xor_si256(a, b); }
  static V add_saturated(V a, V b) { return _mm256_adds_epu8(a, b); }
  static V min8(V a, V b) { return _mm256_min_epu8(a, b); }
  static V max8(V a, V b) { return _mm256_max_epu8(a, b); }
  static V add64(V a, V b) { return _mm256_add_epi64(a, b); }
  static V sum_bytes(V v) { return _mm256_sad_epu8(v, zero()); }
  static V add8(V a, V b) { return _mm256_add_epi8(a, b); }
  template <int kShift>
  static V shift_right(V v) {
    return _mm256_srli_epi16(v, kShift);
  }
  static V parity(V a, V b, V c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  static V majority(V a, V b, V c) {
    return _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(_mm256_xor_si256(a, b), c));
  }
  static V magnitudes(V v) { return and_(v, bytes(0x77)); }
  static V count_zero_blocks(V sum, V v) {
    return _mm256_sub_epi64(sum, _mm256_cmpeq_epi64(magnitudes(v), zero()));
  }
  // A nibble of magnitude 7 (6.0) plus 1 reaches bit 3. Lanes without one are -1 in the comparison.
  static V count_full_blocks(V sum, V v) {
    const V sixes = and_(_mm256_add_epi8(magnitudes(v), bytes(0x11)), bytes(0x88));
    const V none = _mm256_cmpeq_epi64(sixes, zero());
    return _mm256_add_epi64(sum, _mm256_add_epi64(none, _mm256_set1_epi64x(1)));
  }
};

}  // namespace

int64_t count_codes_avx2(const uint8_t* bytes, int64_t n_bytes, CodeCountsRaw& raw) {
  return OneHotCounter<Avx2>::count_codes(bytes, n_bytes, raw);
}

int64_t count_bytes_avx2(const uint8_t* bytes, int64_t n_bytes, uint64_t counts[256]) {
  return OneHotCounter<Avx2>::count_bytes(bytes, n_bytes, counts);
}

}  // namespace sextant
