// One small function an instruction: the whole AVX-512 vocabulary of these kernels. With
// SX_AVX512_EMULATED the same names come from avx512_vec_emulated.h in plain C++, so that the
// kernels' logic is tested on any machine.
//
// Everything is in an unnamed namespace: a per-ISA object must define no weak symbol, or the linker
// could hand its AVX-512 code to a processor without it. For the same reason nothing of our own
// headers with inline functions is included here.
#pragma once

#if defined(SX_AVX512_EMULATED)
#include "kernels/cpu/avx512_vec_emulated.h"
#else

#include <immintrin.h>

#include <cstdint>

namespace sextant::avx512 {
namespace {

using Floats = __m512;      // 16 x float32
using Bits = __m512i;       // 64 bytes, 32 words or 16 dwords
using LaneMask = uint16_t;  // one bit a float

// The first n of 16 lanes, 0 <= n <= 16.
inline LaneMask first_lanes(int64_t n) {
  return static_cast<LaneMask>(n >= 16 ? 0xFFFFU : (1U << n) - 1U);
}

inline Floats zero_f() { return _mm512_setzero_ps(); }
inline Floats set1_f(float x) { return _mm512_set1_ps(x); }
inline Floats load_f(const float* p) { return _mm512_loadu_ps(p); }
inline Floats load_f(const float* p, LaneMask m) { return _mm512_maskz_loadu_ps(m, p); }
inline void store_f(float* p, Floats x) { _mm512_storeu_ps(p, x); }
inline void store_f(float* p, Floats x, LaneMask m) { _mm512_mask_storeu_ps(p, m, x); }
inline Floats add_f(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub_f(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul_f(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div_f(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats fma_f(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand where either is NaN, as the instructions have it.
inline Floats max_f(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats min_f(Floats a, Floats b) { return _mm512_min_ps(a, b); }
// x where the mask's bit is set, otherwise y.
inline Floats select_f(LaneMask m, Floats x, Floats y) { return _mm512_mask_blend_ps(m, y, x); }
inline LaneMask nan_lanes(Floats x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
inline Floats round_f(Floats x) { return _mm512_roundscale_ps(x, 0); }        // nearest even
inline Floats scale_f(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }  // x * 2^n

inline Bits load_b(const void* p) { return _mm512_loadu_si512(p); }
inline void store_b(void* p, Bits x) { _mm512_storeu_si512(p, x); }
inline Bits broadcast16_b(const void* p) {  // the same 16 bytes in each quarter
  return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline Bits set1_u8(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
inline Bits set1_u32(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline Bits and_b(Bits a, Bits b) { return _mm512_and_si512(a, b); }
inline Bits add_u32(Bits a, Bits b) { return _mm512_add_epi32(a, b); }
// Bit by bit: a where mask is 1, b where it is 0 (truth table 0xCA).
inline Bits select_b(Bits mask, Bits a, Bits b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}
template <int n>
inline Bits shift_left_u16(Bits x) {
  return _mm512_slli_epi16(x, n);
}
template <int n>
inline Bits shift_right_u16(Bits x) {
  return _mm512_srli_epi16(x, n);
}
template <int n>
inline Bits shift_left_u32(Bits x) {
  return _mm512_slli_epi32(x, n);
}
template <int n>
inline Bits shift_right_u32(Bits x) {
  return _mm512_srli_epi32(x, n);
}
inline Bits sub_saturated_u16(Bits a, Bits b) { return _mm512_subs_epu16(a, b); }
inline Bits widen_u8(const void* p) {  // 16 bytes to the 16 dwords
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
// Byte tables: 16 entries a quarter (index bits 0-3, bit 7 gives 0), 64 entries (bits 0-5), 128
// entries in two registers (bits 0-6).
inline Bits lookup16_u8(Bits table, Bits index) { return _mm512_shuffle_epi8(table, index); }
inline Bits lookup64_u8(Bits table, Bits index) { return _mm512_permutexvar_epi8(index, table); }
inline Bits lookup128_u8(Bits low, Bits high, Bits index) {
  return _mm512_permutex2var_epi8(low, index, high);
}
// Tables of 32 words (index bits 0-4 of each word) and of 16 dwords (bits 0-3 of each dword).
inline Bits lookup32_u16(Bits table, Bits index) { return _mm512_permutexvar_epi16(index, table); }
inline Bits lookup16_u32(Bits table, Bits index) { return _mm512_permutexvar_epi32(index, table); }
// Within each quarter, the first (last) eight bytes of a and b interleaved: a0 b0 a1 b1 ...
inline Bits interleave_low_u8(Bits a, Bits b) { return _mm512_unpacklo_epi8(a, b); }
inline Bits interleave_high_u8(Bits a, Bits b) { return _mm512_unpackhi_epi8(a, b); }

inline Floats as_floats(Bits x) { return _mm512_castsi512_ps(x); }
inline Bits as_bits(Floats x) { return _mm512_castps_si512(x); }
inline Floats load_f16(const void* p) {  // 16 x FP16
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
// 16 x BF16; lanes out of the mask are not read.
inline Floats load_bf16(const void* p, LaneMask m) {
  return as_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}

// Sums and largest in one fixed order: halves, quarters, pairs.
inline float reduce_add_f(Floats x) { return _mm512_reduce_add_ps(x); }
inline float reduce_max_f(Floats x) { return _mm512_reduce_max_ps(x); }

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// In assembly: gcc takes a function that does nothing but prefetch for one without effect, and
// drops its calls.
inline void prefetch_l2(const void* p) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(p)));
}

#if defined(__AVX512BF16__)
// Lane i: acc += a[2i + 1] * b[2i + 1], then acc += a[2i] * b[2i] (Intel SDM, VDPBF16PS); BF16
// inputs, denormals flushed.
inline Floats dot_bf16(Floats acc, Bits a, Bits b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
#endif

// Tile registers (AMX) of 16 rows of 64 bytes. 0-3 hold sums (rows tokens, columns weight rows), 4
// and 5 inputs (rows tokens, 32 BF16), 6 and 7 weights (16 pairs of k, 16 weight rows). In
// assembly: g++-12's intrinsics take literal tile numbers only and let stores move past tile loads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline void tiles_configure(int64_t n_tokens) {
  TileConfig config;
  for (int i = 0; i < 5; ++i) config.rows[i] = static_cast<uint8_t>(n_tokens);
  asm volatile("ldtilecfg %0" ::"m"(config));
}
inline void tiles_release() { asm volatile("tilerelease" ::); }
template <int t>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(t));
}
template <int t>
inline void tile_load(const void* p, int64_t stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride_bytes), "i"(t) : "memory");
}
template <int t>
inline void tile_store(void* p, int64_t stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride_bytes), "i"(t) : "memory");
}
// sums[row][col] += the 32 products of input row and weight column, in the instruction's own order.
template <int sums, int input, int weights>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(input), "i"(weights));
}

}  // namespace
}  // namespace sextant::avx512

#endif
