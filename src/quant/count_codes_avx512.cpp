// count_codes and count_bytes for AVX-512 (F, BW).
#include <immintrin.h>

#include "quant/count_codes_vec.h"

namespace sextant {
namespace {

struct Avx512 {
  using V = __m512i;
  static constexpr int64_t kBytes = 64;

  static V load(const void* p) { return _mm512_loadu_si512(p); }
  static void store(void* p, V v) { _mm512_storeu_si512(p, v); }
  static V zero() { return _mm512_setzero_si512(); }
  static V bytes(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
  static V shuffle(V table, V index) { return _mm512_shuffle_epi8(table, index); }
  static V and_(V a, V b) { return _mm512_and_si512(a, b); }
  static V xor_(V a, V b) { return _mm512_xor_si512(a, b); }
  static V add_saturated(V a, V b) { return _mm512_adds_epu8(a, b); }
  static V min8(V a, V b) { return _mm512_min_epu8(a, b); }
  static V max8(V a, V b) { return _mm512_max_epu8(a, b); }
  static V add64(V a, V b) { return _mm512_add_epi64(a, b); }
  static V sum_bytes(V v) { return _mm512_sad_epu8(v, zero()); }
  static V add8(V a, V b) { return _mm512_add_epi8(a, b); }
  template <int kShift>
  static V shift_right(V v) {
    return _mm512_srli_epi16(v, kShift);
  }
  // Truth tables, bit 4a + 2b + c: set for one or three ones, and for at least two.
  static V parity(V a, V b, V c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  static V majority(V a, V b, V c) { return _mm512_ternarylogic_epi64(a, b, c, 0xE8); }
  static V count_zero_blocks(V sum, V v) {
    const __mmask8 none = _mm512_testn_epi64_mask(v, bytes(0x77));
    return _mm512_mask_add_epi64(sum, none, sum, _mm512_set1_epi64(1));
  }
  // A nibble of magnitude 7 (6.0) plus 1 reaches bit 3.
  static V count_full_blocks(V sum, V v) {
    const V sixes = _mm512_add_epi8(and_(v, bytes(0x77)), bytes(0x11));
    const __mmask8 some = _mm512_test_epi64_mask(sixes, bytes(static_cast<int>(0x88)));
    return _mm512_mask_add_epi64(sum, some, sum, _mm512_set1_epi64(1));
  }
};

}  // namespace

int64_t count_codes_avx512(const uint8_t* bytes, int64_t n_bytes, CodeCountsRaw& raw) {
  return OneHotCounter<Avx512>::count_codes(bytes, n_bytes, raw);
}

int64_t count_bytes_avx512(const uint8_t* bytes, int64_t n_bytes, uint64_t counts[256]) {
  return OneHotCounter<Avx512>::count_bytes(bytes, n_bytes, counts);
}

}  // namespace sextant
