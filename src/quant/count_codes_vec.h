// The vector form of count_codes and count_bytes, for the files that compile it for one ISA: they
// include it and intrinsics only, so that their objects hold no weak symbol.
//
// A byte shuffle turns each nibble into a byte with one bit set (values 0-7 by one table, 8-15 by
// another). How often each bit is set is then counted with carry-save adders (Harley and Seal; in
// H. Warren, Hacker's Delight, 2nd ed., 5-1): three vectors of weight 1 become one of weight 1 and
// one of weight 2, so that 16 vectors cost 15 adders and leave one vector of weight 16. Worked
// example, one bit: the inputs 1, 1, 1 give weight 1: 1 and weight 2: 1, that is 3.
//
// Bytes are counted the same way, a high nibble at a time: of those that have another, the shuffle
// makes no bit. Scales have few high nibbles, so this takes a third of the time of a table of
// counts in memory, and as long whatever the order of the bytes.
#pragma once

#include <cstdint>

#include "quant/count_codes_isa.h"

namespace sextant {
namespace {

// Vec: a vector type with load, store, zero, bytes (all lanes one byte), shuffle (within 128 bits,
// 0 where bit 7 of the index is set), and_, xor_, add8, add_saturated (unsigned bytes), min8, max8
// (unsigned), add64, shift_right (of 16-bit lanes), and
//   sum_bytes(v)                        sums of bytes in 64-bit lanes
//   majority(a, b, c), parity(a, b, c)  the two outputs of a full adder, bit by bit
//   count_zero_blocks(sum, v), count_full_blocks(sum, v)  adds one to each 64-bit lane that is one
template <class Vec>
struct OneHotCounter {
  using V = typename Vec::V;
  static constexpr int64_t kBytes = Vec::kBytes;
  static constexpr int64_t kChunk = 16 * kBytes;
  // Hardware reads ahead within a page of 4096 bytes: this crosses it (12 % of a core's time on a
  // Xeon of 2023).
  static constexpr int64_t kPrefetch = 4096;
  static constexpr int kMaxSixteens = 15;  // of one bit in a nibble of `sixteens`

  struct Bits {  // running sums of one table's bits, by weight
    V one, two, four, eight;
    V sixteens[4];  // bits j and j + 4 in nibbles
    V counts[8];    // of weight 16, in 64-bit lanes
  };

  static void clear(Bits& bits) {
    bits.one = bits.two = bits.four = bits.eight = Vec::zero();
    for (V& v : bits.sixteens) v = Vec::zero();
    for (V& v : bits.counts) v = Vec::zero();
  }

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

  // The low (0) or high (4) nibbles.
  template <int kShift>
  struct Nibbles {
    V table;
    [[gnu::always_inline]] V operator()(const uint8_t* p) const {
      V v = Vec::load(p);
      if constexpr (kShift != 0) v = Vec::template shift_right<kShift>(v);
      return Vec::shuffle(table, Vec::and_(v, Vec::bytes(0x0F)));
    }
  };
  // The low nibbles of bytes with one high nibble. Worked example, 0x6A under 0x60: 0x6A ^ 0x60 is
  // 0x0A, and 0x70 makes it 0x7A; 0x5A ^ 0x60 is 0x3A, which becomes 0xAA, so the shuffle gives 0.
  struct NibblesUnder {
    V table;
    V high;
    [[gnu::always_inline]] V operator()(const uint8_t* p) const {
      const V low = Vec::xor_(Vec::load(p), high);
      return Vec::shuffle(table, Vec::add_saturated(low, Vec::bytes(0x70)));
    }
  };

  template <class OneHot>
  [[gnu::always_inline]] static void count_chunk(const uint8_t* p, OneHot one_hot, Bits& bits) {
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
          twos[k] = add(one, one_hot(at), one_hot(at + kBytes));
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
    for (int j = 0; j < 4; ++j) {
      const V v = bits.sixteens[j];
      const V high = Vec::template shift_right<4>(v);
      const V nibble = Vec::bytes(0x0F);
      bits.counts[j] = Vec::add64(bits.counts[j], Vec::sum_bytes(Vec::and_(v, nibble)));
      bits.counts[j + 4] = Vec::add64(bits.counts[j + 4], Vec::sum_bytes(Vec::and_(high, nibble)));
      bits.sixteens[j] = Vec::zero();
    }
  }

  static uint64_t lanes_sum(V v) {
    uint64_t lanes[kBytes / 8];
    Vec::store(lanes, v);
    uint64_t sum = 0;
    for (const uint64_t lane : lanes) sum += lane;
    return sum;
  }

  // After empty_sixteens.
  static void finish(const Bits& bits, uint64_t counts[8]) {
    for (int j = 0; j < 8; ++j) counts[j] = 16 * lanes_sum(bits.counts[j]);
    uint64_t weight = 1;
    const V sums[4] = {bits.one, bits.two, bits.four, bits.eight};
    for (V v : sums) {
      for (int j = 0; j < 8; ++j) {
        counts[j] += weight * lanes_sum(Vec::sum_bytes(Vec::and_(v, Vec::bytes(0x01))));
        v = Vec::template shift_right<1>(v);
      }
      weight *= 2;
    }
  }

  [[gnu::always_inline]] static int64_t count_codes(const uint8_t* bytes, int64_t n_bytes,
                                                    CodeCountsRaw& raw) {
    Bits bits[4];
    for (Bits& b : bits) clear(b);
    const V first = table(0);
    const V second = table(8);
    V zero_blocks = Vec::zero();
    V full_blocks = Vec::zero();
    int n_sixteens = 0;
    int64_t at = 0;
    for (; at + kChunk <= n_bytes; at += kChunk) {
      const uint8_t* p = bytes + at;
      count_chunk(p, Nibbles<0>{first}, bits[0]);
      count_chunk(p, Nibbles<0>{second}, bits[1]);
      count_chunk(p, Nibbles<4>{first}, bits[2]);
      count_chunk(p, Nibbles<4>{second}, bits[3]);
      for (int64_t i = 0; i < kChunk; i += kBytes) {
        if (i % 64 == 0) __builtin_prefetch(p + i + kPrefetch);
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
      empty_sixteens(bits[i]);
      finish(bits[i], raw.nibbles[i]);
    }
    raw.n_zero_blocks = static_cast<int64_t>(lanes_sum(zero_blocks));
    raw.n_full_blocks = static_cast<int64_t>(lanes_sum(full_blocks));
    return at;
  }

  // The high nibbles of the smallest and the largest of n bytes, whole chunks.
  static void find_range(const uint8_t* p, int64_t n, int& low, int& high) {
    V min = Vec::load(p);
    V max = min;
    for (int64_t i = kBytes; i < n; i += kBytes) {
      const V v = Vec::load(p + i);
      min = Vec::min8(min, v);
      max = Vec::max8(max, v);
    }
    uint8_t mins[kBytes];
    uint8_t maxs[kBytes];
    Vec::store(mins, min);
    Vec::store(maxs, max);
    low = 15;
    high = 0;
    for (int64_t i = 0; i < kBytes; ++i) {
      low = mins[i] >> 4 < low ? mins[i] >> 4 : low;
      high = maxs[i] >> 4 > high ? maxs[i] >> 4 : high;
    }
  }

  [[gnu::always_inline]] static int64_t count_bytes(const uint8_t* bytes, int64_t n_bytes,
                                                    uint64_t counts[256]) {
    const V tables[2] = {table(0), table(8)};
    Bits bits[16][2];  // by high nibble
    bool used[16] = {};
    int64_t at = 0;
    while (at + kChunk <= n_bytes) {
      const int64_t left = (n_bytes - at) / kChunk;
      const int64_t part = (left < kMaxSixteens ? left : kMaxSixteens) * kChunk;
      const uint8_t* p = bytes + at;
      int low = 0;
      int high = 0;
      find_range(p, part, low, high);
      for (int nibble = low; nibble <= high; ++nibble) {
        for (int half = 0; half < 2; ++half) {
          Bits& b = bits[nibble][half];
          if (!used[nibble]) clear(b);
          const NibblesUnder one_hot{tables[half], Vec::bytes(nibble << 4)};
          for (int64_t i = 0; i < part; i += kChunk) count_chunk(p + i, one_hot, b);
          empty_sixteens(b);
        }
        used[nibble] = true;
      }
      at += part;
    }
    for (int nibble = 0; nibble < 16; ++nibble)
      for (int half = 0; half < 2; ++half)
        if (used[nibble]) finish(bits[nibble][half], counts + 16 * nibble + 8 * half);
    return at;
  }
};

}  // namespace
}  // namespace sextant
