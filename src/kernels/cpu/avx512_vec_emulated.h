// The vocabulary of avx512_vec.h in plain C++, lane by lane as the Intel SDM describes each
// instruction. Only the emulation test includes it (through avx512_vec.h); slow on purpose.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/bf16.h"

namespace sextant::avx512_emulated {
namespace {

struct Floats {
  float lane[16];
};
struct Bits {
  uint8_t byte[64];
};
using LaneMask = uint16_t;

inline LaneMask first_lanes(int64_t n) {
  return static_cast<LaneMask>(n >= 16 ? 0xFFFFU : (1U << n) - 1U);
}

template <class F>
inline Floats each_lane(F&& f) {
  Floats r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}
template <class F>
inline Bits each_byte(F&& f) {
  Bits r;
  for (int i = 0; i < 64; ++i) r.byte[i] = static_cast<uint8_t>(f(i));
  return r;
}
template <class Word>
inline Word word_at(const Bits& x, int i) {
  Word w;
  std::memcpy(&w, x.byte + i * static_cast<int>(sizeof(Word)), sizeof(Word));
  return w;
}
template <class Word, class F>
inline Bits each_word(F&& f) {
  Bits r;
  for (int i = 0; i < 64 / static_cast<int>(sizeof(Word)); ++i) {
    const Word w = static_cast<Word>(f(i));
    std::memcpy(r.byte + i * static_cast<int>(sizeof(Word)), &w, sizeof(Word));
  }
  return r;
}

inline Floats set1_f(float x) {
  return each_lane([&](int) { return x; });
}
inline Floats zero_f() { return set1_f(0.0F); }
inline Floats load_f(const float* p, LaneMask m) {
  return each_lane([&](int i) { return ((m >> i) & 1) != 0 ? p[i] : 0.0F; });
}
inline Floats load_f(const float* p) { return load_f(p, 0xFFFF); }
inline void store_f(float* p, const Floats& x, LaneMask m) {
  for (int i = 0; i < 16; ++i)
    if (((m >> i) & 1) != 0) p[i] = x.lane[i];
}
inline void store_f(float* p, const Floats& x) { store_f(p, x, 0xFFFF); }
inline Floats add_f(const Floats& a, const Floats& b) {
  return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats sub_f(const Floats& a, const Floats& b) {
  return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Floats mul_f(const Floats& a, const Floats& b) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats div_f(const Floats& a, const Floats& b) {
  return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Floats fma_f(const Floats& a, const Floats& b, const Floats& c) {
  return each_lane([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Floats max_f(const Floats& a, const Floats& b) {
  return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats min_f(const Floats& a, const Floats& b) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats select_f(LaneMask m, const Floats& x, const Floats& y) {
  return each_lane([&](int i) { return ((m >> i) & 1) != 0 ? x.lane[i] : y.lane[i]; });
}
inline LaneMask nan_lanes(const Floats& x) {
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= std::isnan(x.lane[i]) ? 1U << i : 0U;
  return static_cast<LaneMask>(mask);
}
inline Floats round_f(const Floats& x) {
  return each_lane([&](int i) { return std::nearbyint(x.lane[i]); });
}
inline Floats scale_f(const Floats& x, const Floats& n) {
  return each_lane([&](int i) {
    if (std::isnan(n.lane[i])) return n.lane[i];
    return std::ldexp(x.lane[i], static_cast<int>(std::floor(n.lane[i])));
  });
}

inline Bits load_b(const void* p) {
  Bits r;
  std::memcpy(r.byte, p, 64);
  return r;
}
inline void store_b(void* p, const Bits& x) { std::memcpy(p, x.byte, 64); }
inline Bits broadcast16_b(const void* p) {
  return each_byte([&](int i) { return static_cast<const uint8_t*>(p)[i % 16]; });
}
inline Bits set1_u8(uint8_t x) {
  return each_byte([&](int) { return x; });
}
inline Bits set1_u32(uint32_t x) {
  return each_word<uint32_t>([&](int) { return x; });
}
inline Bits and_b(const Bits& a, const Bits& b) {
  return each_byte([&](int i) { return a.byte[i] & b.byte[i]; });
}
inline Bits add_u32(const Bits& a, const Bits& b) {
  return each_word<uint32_t>(
      [&](int i) { return word_at<uint32_t>(a, i) + word_at<uint32_t>(b, i); });
}
inline Bits select_b(const Bits& mask, const Bits& a, const Bits& b) {
  return each_byte([&](int i) { return (mask.byte[i] & a.byte[i]) | (~mask.byte[i] & b.byte[i]); });
}
template <int n>
inline Bits shift_left_u16(const Bits& x) {
  return each_word<uint16_t>([&](int i) { return word_at<uint16_t>(x, i) << n; });
}
template <int n>
inline Bits shift_right_u16(const Bits& x) {
  return each_word<uint16_t>([&](int i) { return word_at<uint16_t>(x, i) >> n; });
}
template <int n>
inline Bits shift_left_u32(const Bits& x) {
  return each_word<uint32_t>([&](int i) { return word_at<uint32_t>(x, i) << n; });
}
template <int n>
inline Bits shift_right_u32(const Bits& x) {
  return each_word<uint32_t>([&](int i) { return word_at<uint32_t>(x, i) >> n; });
}
inline Bits sub_saturated_u16(const Bits& a, const Bits& b) {
  return each_word<uint16_t>([&](int i) {
    const int difference = word_at<uint16_t>(a, i) - word_at<uint16_t>(b, i);
    return difference > 0 ? difference : 0;
  });
}
inline Bits widen_u8(const void* p) {
  return each_word<uint32_t>([&](int i) { return static_cast<const uint8_t*>(p)[i]; });
}
inline Bits lookup16_u8(const Bits& table, const Bits& index) {
  return each_byte([&](int i) {
    const int at = index.byte[i];
    return at >= 128 ? 0 : table.byte[i / 16 * 16 + (at & 15)];
  });
}
inline Bits lookup64_u8(const Bits& table, const Bits& index) {
  return each_byte([&](int i) { return table.byte[index.byte[i] & 63]; });
}
inline Bits lookup128_u8(const Bits& low, const Bits& high, const Bits& index) {
  return each_byte([&](int i) {
    const int at = index.byte[i];
    return (at & 64) != 0 ? high.byte[at & 63] : low.byte[at & 63];
  });
}
inline Bits lookup32_u16(const Bits& table, const Bits& index) {
  return each_word<uint16_t>(
      [&](int i) { return word_at<uint16_t>(table, word_at<uint16_t>(index, i) & 31); });
}
inline Bits lookup16_u32(const Bits& table, const Bits& index) {
  return each_word<uint32_t>([&](int i) {
    return word_at<uint32_t>(table, static_cast<int>(word_at<uint32_t>(index, i) & 15U));
  });
}
inline Bits interleave_u8(const Bits& a, const Bits& b, int from) {
  return each_byte([&](int i) {
    const int at = i / 16 * 16 + from + i % 16 / 2;
    return i % 2 == 0 ? a.byte[at] : b.byte[at];
  });
}
inline Bits interleave_low_u8(const Bits& a, const Bits& b) { return interleave_u8(a, b, 0); }
inline Bits interleave_high_u8(const Bits& a, const Bits& b) { return interleave_u8(a, b, 8); }

inline Floats as_floats(const Bits& x) { return std::bit_cast<Floats>(x); }
inline Bits as_bits(const Floats& x) { return std::bit_cast<Bits>(x); }
inline uint16_t half_at(const void* p, int i) {
  uint16_t half;
  std::memcpy(&half, static_cast<const char*>(p) + 2 * i, 2);
  return half;
}
inline Floats load_f16(const void* p) {
  return each_lane([&](int i) { return fp16_to_f32(half_at(p, i)); });
}
inline Floats load_bf16(const void* p, LaneMask m) {
  return each_lane([&](int i) { return ((m >> i) & 1) != 0 ? bf16_to_f32(half_at(p, i)) : 0.0F; });
}

template <class F>
inline float reduce(Floats x, F&& f) {
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) x.lane[i] = f(x.lane[i], x.lane[i + n]);
  return x.lane[0];
}
inline float reduce_add_f(const Floats& x) {
  return reduce(x, [](float a, float b) { return a + b; });
}
inline float reduce_max_f(const Floats& x) {
  return reduce(x, [](float a, float b) { return a > b ? a : b; });
}

inline void prefetch(const void*) {}
inline void prefetch_l2(const void*) {}

// VDPBF16PS: denormal inputs count as zero, each fused step rounds to nearest even, denormal
// results become zero. A product of two BF16 is exact in float32 unless it is tiny, so that a
// multiplication and an addition are the fused step.
inline float flush(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
inline float fused_step(uint32_t a, uint32_t b, float acc) {
  const float x = flush(std::bit_cast<float>(a));
  const float y = flush(std::bit_cast<float>(b));
  const float product = x * y;
  const float magnitude = std::fabs(product);
  if ((magnitude < 0x1p-100F && magnitude != 0.0F) || magnitude > 0x1p100F) [[unlikely]]
    return flush(std::fma(x, y, acc));
  return flush(product + acc);
}
inline Floats dot_bf16(const Floats& acc, const Bits& a, const Bits& b) {
  return each_lane([&](int i) {
    const auto x = word_at<uint32_t>(a, i);
    const auto y = word_at<uint32_t>(b, i);
    const float odd = fused_step(x & 0xFFFF0000U, y & 0xFFFF0000U, flush(acc.lane[i]));
    return fused_step(x << 16, y << 16, odd);
  });
}

// Tiles. TDPBF16PS sums even and odd elements of k apart and adds both to the destination.
struct TileState {
  int64_t n_tokens = 0;
  uint32_t words[8][16][16];
};
inline TileState& tiles() {
  thread_local TileState state;
  return state;
}
inline int64_t tile_rows(int t) { return t < 5 ? tiles().n_tokens : 16; }
inline void tiles_configure(int64_t n_tokens) {
  tiles().n_tokens = n_tokens;
  std::memset(tiles().words, 0, sizeof(TileState::words));
}
inline void tiles_release() { tiles().n_tokens = 0; }
template <int t>
inline void tile_zero() {
  std::memset(tiles().words[t], 0, sizeof(tiles().words[t]));
}
template <int t>
inline void tile_load(const void* p, int64_t stride_bytes) {
  for (int64_t r = 0; r < tile_rows(t); ++r)
    std::memcpy(tiles().words[t][r], static_cast<const char*>(p) + r * stride_bytes, 64);
}
template <int t>
inline void tile_store(void* p, int64_t stride_bytes) {
  for (int64_t r = 0; r < tile_rows(t); ++r)
    std::memcpy(static_cast<char*>(p) + r * stride_bytes, tiles().words[t][r], 64);
}
template <int sums, int input, int weights>
inline void tile_dot_bf16() {
  TileState& s = tiles();
  for (int64_t r = 0; r < s.n_tokens; ++r) {
    for (int col = 0; col < 16; ++col) {
      float even = 0.0F;
      float odd = 0.0F;
      for (int pair = 0; pair < 16; ++pair) {
        const uint32_t a = s.words[input][r][pair];
        const uint32_t b = s.words[weights][pair][col];
        even = fused_step(a << 16, b << 16, even);
        odd = fused_step(a & 0xFFFF0000U, b & 0xFFFF0000U, odd);
      }
      uint32_t& sum = s.words[sums][r][col];
      sum = std::bit_cast<uint32_t>(flush(std::bit_cast<float>(sum) + flush(even + odd)));
    }
  }
}

}  // namespace
}  // namespace sextant::avx512_emulated
