// Flash-style attention (Dao et al. 2022) of the query heads that share one key head: keys in
// blocks of 64 at fixed absolute positions, a running maximum and sum, values added with float32
// FMA. What one head gets depends on its own keys only, never on how many heads or rows run beside
// it. Per-ISA code.
#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

constexpr float kLowest = -3.402823466e38F;

// 16 elements of a key or value from `at` on.
Floats load_kv(const AttentionTask& t, const void* page, int64_t at, LaneMask m) {
  if (t.bf16) return load_bf16(static_cast<const uint16_t*>(page) + at, m);
  return load_f(static_cast<const float*>(page) + at, m);
}

int64_t element(const AttentionTask& t, int64_t pos) {
  return pos % t.page_tokens * t.kv_stride + t.kv_offset;
}

// One head's state inside the scratch.
struct Head {
  const float* q = nullptr;
  float* scores = nullptr;  // kAttentionKeys
  float* sums = nullptr;    // head_dim, padded
  float largest = kLowest;
  float total = 0.0F;
};

// Scores of keys [begin, end) of one block for kHeads heads: a dot product over head_dim, 16 lanes
// and then across.
template <int kHeads>
void block_scores(const AttentionTask& t, Head* heads, int64_t block, int64_t begin, int64_t end) {
  for (int64_t pos = begin; pos < end; ++pos) {
    const void* page = t.k_pages[pos / t.page_tokens];
    const int64_t at = element(t, pos);
    Floats dots[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) dots[h] = zero_f();
    for (int64_t c = 0; c < t.head_dim; c += 16) {
      const LaneMask m = first_lanes(t.head_dim - c);
      const Floats key = load_kv(t, page, at + c, m);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) dots[h] = fma_f(load_f(heads[h].q + c, m), key, dots[h]);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) heads[h].scores[pos - block] = reduce_add_f(dots[h]) * t.scale;
  }
}

// Turns the block's scores into weights exp(score - largest) and rescales what was summed before.
// Scores of keys out of [begin, end) are set so that their weight is 0.
void block_weights(const AttentionTask& t, Head& head, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < begin; ++i) head.scores[i] = kLowest;
  for (int64_t i = end; i < kAttentionKeys; ++i) head.scores[i] = kLowest;
  Floats top = load_f(head.scores);
  for (int64_t i = 16; i < kAttentionKeys; i += 16) top = max_f(top, load_f(head.scores + i));
  const float block_largest = reduce_max_f(top);
  const float largest = block_largest > head.largest ? block_largest : head.largest;
  Floats total = zero_f();
  for (int64_t i = 0; i < kAttentionKeys; i += 16) {
    const auto inside = static_cast<LaneMask>(first_lanes(end - i < 0 ? 0 : end - i) &
                                              ~first_lanes(begin - i < 0 ? 0 : begin - i));
    const Floats weights =
        select_f(inside, exp_f(sub_f(load_f(head.scores + i), set1_f(largest))), zero_f());
    store_f(head.scores + i, weights);
    total = add_f(total, weights);
  }
  float lanes[16];
  store_f(lanes, exp_f(set1_f(head.largest - largest)));
  const Floats rescale = set1_f(lanes[0]);
  for (int64_t c = 0; c < t.head_dim; c += 16)
    store_f(head.sums + c, mul_f(load_f(head.sums + c), rescale));
  head.total = head.total * lanes[0] + reduce_add_f(total);
  head.largest = largest;
}

// sums += weight * value over the block's keys; four vectors of head_dim at a time stay in
// registers for each head.
template <int kHeads>
void block_values(const AttentionTask& t, Head* heads, int64_t block, int64_t begin, int64_t end) {
  constexpr int kWide = 4;
  for (int64_t base = 0; base < t.head_dim; base += 16 * kWide) {
    Floats sums[kHeads][kWide];
    LaneMask masks[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      const int64_t left = t.head_dim - base - v * 16;
      masks[v] = first_lanes(left < 0 ? 0 : left);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sums[h][v] = load_f(heads[h].sums + base + v * 16, masks[v]);
    }
    for (int64_t pos = begin; pos < end; ++pos) {
      const void* page = t.v_pages[pos / t.page_tokens];
      const int64_t at = element(t, pos) + base;
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) {
        const Floats value = load_kv(t, page, at + v * 16, masks[v]);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h)
          sums[h][v] = fma_f(set1_f(heads[h].scores[pos - block]), value, sums[h][v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v)
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) store_f(heads[h].sums + base + v * 16, sums[h][v], masks[v]);
  }
}

template <int kHeads>
void attend(const AttentionTask& t, int64_t first_head) {
  const int64_t padded = (t.head_dim + 15) / 16 * 16;
  Head heads[kHeads];
  float* free = t.scratch;
  for (int h = 0; h < kHeads; ++h) {
    heads[h].q = t.q + (first_head + h) * t.head_dim;
    heads[h].scores = free;
    heads[h].sums = free + kAttentionKeys;
    free += kAttentionKeys + padded;
    for (int64_t c = 0; c < padded; c += 16) store_f(heads[h].sums + c, zero_f());
  }
  const int64_t first_block = t.pos_begin / kAttentionKeys * kAttentionKeys;
  for (int64_t block = first_block; block < t.pos_end; block += kAttentionKeys) {
    const int64_t begin = t.pos_begin > block ? t.pos_begin : block;
    const int64_t end = t.pos_end < block + kAttentionKeys ? t.pos_end : block + kAttentionKeys;
    block_scores<kHeads>(t, heads, block, begin, end);
    for (int h = 0; h < kHeads; ++h) block_weights(t, heads[h], begin - block, end - block);
    block_values<kHeads>(t, heads, block, begin, end);
  }
  for (int h = 0; h < kHeads; ++h) {
    float* out = t.out + (first_head + h) * t.head_dim;
    const Floats total = set1_f(heads[h].total);
    for (int64_t c = 0; c < t.head_dim; c += 16)
      store_f(out + c, div_f(load_f(heads[h].sums + c), total), first_lanes(t.head_dim - c));
  }
}

}  // namespace

void attention_heads(const AttentionTask& task) {
  for (int64_t head = 0; head < task.n_heads;) {
    const int64_t left = task.n_heads - head;
    if (left >= 4) {
      attend<4>(task, head);
      head += 4;
    } else if (left >= 2) {
      attend<2>(task, head);
      head += 2;
    } else {
      attend<1>(task, head);
      head += 1;
    }
  }
}

}  // namespace sextant::SX_AVX512_NAMESPACE
