// The vector form of count_codes, for the files that compile it for one ISA: they include it and
// intrinsics only, so that their objects hold no weak symbol.
//
// A byte shuffle turns each nibble into a byte with one bit set (codes 0-7 by one table, 8-15 by
// another). How often each bit is set is then counted with carry-save adders (Harley and Seal; in
// H. Warren, Hacker's Delight, 2nd ed., 5-1): three vectors of weight 1 become one of weight 1 and
// one of weight 2, so that 16 vectors cost 15 adders and leave one vector of weight 16. Worked
// example, one bit: the inputs 1, 1, 1 give weight 1: 1 and weight 2: 1, that is 3.
#pragma once

#include <cstdint>

#include "quant/count_codes_isa.h"

namespace sextant {
namespace {

// Vec: a vector type with load, zero, bytes (all lanes one byte), shuffle (within 128 bits),
// shift_right (of 16-bit lanes), store, and
//   majority(a, b, c), parity(a, b, c)  the two outputs of a full adder, bit by bit
//   count_zero_blocks(sum, v), count_full_blocks(sum, v)  adds one to each 64-bit lane that is one
template <class Vec>
struct CodeCounter {
  using V = typename Vec::V;
  static constexpr int64_t kBytes = Vec::kBytes;
  static constexpr int64_t kChunk = 16 * kBytes;
  static constexpr int kMaxSixteens = 15;  // of one bit in a nibble of `sixteens`

  struct Bits {  // running sums of one table's bits, by weight
    V one, two, four, eight;
    V sixteens[4];  // bits j and j + 4 in nibbles
    uint64_t counts[8];
  };

  [[gnu::always_inline]] static V add(V& sum, V b, V c) {
    const V carry = Vec::majority(sum, b, c);
    sum = Vec::parity(sum, b, c);
    return carry;
  }

  // In each 128 bits byte c has the bit c - first set, or none.
  static V table(int first) {
    uint8_t bytes[kBytes] = {};
    for (int64_t lane = 0; lane < kBytes; lane += 16)
      for (int bit = 0; bit < 8; ++bit) bytes[lane + first + bit] = static_cast<uint8_t>(1 << bit);
    return Vec::load(bytes);
  }

  template <int kShift>
  [[gnu::always_inline]] static V one_hot(const uint8_t* p, V table) {
    V v = Vec::load(p);
    if constexpr (kShift != 0) v = Vec::template shift_right<kShift>(v);
    return Vec::shuffle(table, Vec::and_(v, Vec::bytes(0x0F)));
  }

  template <int kShift>
  [[gnu::always_inline]] static void count_chunk(const uint8_t* p, V table, Bits& bits) {
    V one = bits.one;
    V two = bits.two;
    V four = bits.four;
    V eight = bits.eight;
    V eights[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V fours[2];
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        V twos[2];
#pragma GCC unroll 2
        for (int k = 0; k < 2; ++k) {
          const uint8_t* at = p + kBytes * (8 * i + 4 * j + 2 * k);
          twos[k] = add(one, one_hot<kShift>(at, table), one_hot<kShift>(at + kBytes, table));
        }
        fours[j] = add(two, twos[0], twos[1]);
      }
      eights[i] = add(four, fours[0], fours[1]);
    }
    V sixteen = add(eight, eights[0], eights[1]);
    bits.one = one;
    bits.two = two;
    bits.four = four;
    bits.eight = eight;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      bits.sixteens[j] = Vec::add8(bits.sixteens[j], Vec::and_(sixteen, Vec::bytes(0x11)));
      sixteen = Vec::template shift_right<1>(sixteen);
    }
  }

  static void empty_sixteens(Bits& bits) {
    uint8_t bytes[kBytes];
    for (int j = 0; j < 4; ++j) {
      Vec::store(bytes, bits.sixteens[j]);
      for (const uint8_t byte : bytes) {
        bits.counts[j] += uint64_t{16} * (byte & 15U);
        bits.counts[j + 4] += uint64_t{16} * (byte >> 4);
      }
      bits.sixteens[j] = Vec::zero();
    }
  }

  static void empty_weight(Bits& bits, V v, int weight) {
    uint8_t bytes[kBytes];
    Vec::store(bytes, v);
    for (const uint8_t byte : bytes)
      for (int j = 0; j < 8; ++j) bits.counts[j] += static_cast<uint64_t>(weight * (byte >> j & 1));
  }

  static int64_t lanes_sum(V v) {
    uint64_t lanes[kBytes / 8];
    Vec::store(lanes, v);
    uint64_t sum = 0;
    for (const uint64_t lane : lanes) sum += lane;
    return static_cast<int64_t>(sum);
  }

  [[gnu::always_inline]] static int64_t run(const uint8_t* bytes, int64_t n_bytes,
                                            CodeCountsRaw& raw) {
    const V zero = Vec::zero();
    Bits bits[4];
    for (Bits& b : bits) {
      b.one = b.two = b.four = b.eight = zero;
      for (V& v : b.sixteens) v = zero;
      for (uint64_t& count : b.counts) count = 0;
    }
    const V first = table(0);
    const V second = table(8);
    V zero_blocks = zero;
    V full_blocks = zero;
    int n_sixteens = 0;
    int64_t at = 0;
    for (; at + kChunk <= n_bytes; at += kChunk) {
      const uint8_t* p = bytes + at;
      count_chunk<0>(p, first, bits[0]);
      count_chunk<0>(p, second, bits[1]);
      count_chunk<4>(p, first, bits[2]);
      count_chunk<4>(p, second, bits[3]);
      for (int64_t i = 0; i < kChunk; i += kBytes) {
        const V v = Vec::load(p + i);
        zero_blocks = Vec::count_zero_blocks(zero_blocks, v);
        full_blocks = Vec::count_full_blocks(full_blocks, v);
      }
      if (++n_sixteens == kMaxSixteens) {
        for (Bits& b : bits) empty_sixteens(b);
        n_sixteens = 0;
      }
    }
    for (int i = 0; i < 4; ++i) {
      Bits& b = bits[i];
      empty_sixteens(b);
      empty_weight(b, b.one, 1);
      empty_weight(b, b.two, 2);
      empty_weight(b, b.four, 4);
      empty_weight(b, b.eight, 8);
      for (int j = 0; j < 8; ++j) raw.nibbles[i][j] = b.counts[j];
    }
    raw.n_zero_blocks = lanes_sum(zero_blocks);
    raw.n_full_blocks = lanes_sum(full_blocks);
    return at;
  }
};

}  // namespace
}  // namespace sextant
