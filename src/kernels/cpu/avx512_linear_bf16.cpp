// Linear layers with BF16 input: chains of vdpbf16ps. Packed weights become exact BF16, FP4 codes
// without their scale (one FMA a block of 16 applies it), so the only roundings are those of the
// float32 sums. Needs AVX512_BF16.
#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_tiles.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

template <int kGroups, int kTokens>
inline void add_pairs(const unsigned char* w, int64_t w_stride, const uint32_t* x, int64_t n_pairs,
                      Floats acc[kGroups][kTokens]) {
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    Bits weights[kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) weights[g] = load_b(w + g * 64);
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) {
      const Bits input = set1_u32(x[i]);
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) acc[g][i] = dot_bf16(acc[g][i], weights[g], input);
    }
    w += w_stride;
    x += kTokens;
  }
}

template <bool kBlocks, int kGroups, int kTokens>
void tile_bf16(const Tile& t) {
  Floats acc[kGroups][kTokens];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) acc[g][i] = tile_start(t, g, i);
  const auto* x = static_cast<const uint32_t*>(t.x);
  if constexpr (kBlocks)
    run_blocks<kGroups, kTokens, kTokens>(
        t, x, acc, [&](const unsigned char* w, const uint32_t* from, int64_t n, auto& sums) {
          add_pairs<kGroups, kTokens>(w, t.w_stride, from, n, sums);
        });
  else
    add_pairs<kGroups, kTokens>(t.w, t.w_stride, x, t.n_pairs, acc);
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) tile_finish(t, g, i, acc[g][i]);
}

template <bool kBlocks>
TileFunction tile_of(int64_t groups, int64_t width) {
  static constexpr TileFunction kOne[13] = {nullptr,
                                            tile_bf16<kBlocks, 1, 1>,
                                            tile_bf16<kBlocks, 1, 2>,
                                            tile_bf16<kBlocks, 1, 3>,
                                            tile_bf16<kBlocks, 1, 4>,
                                            nullptr,
                                            tile_bf16<kBlocks, 1, 6>,
                                            nullptr,
                                            tile_bf16<kBlocks, 1, 8>,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            tile_bf16<kBlocks, 1, 12>};
  static constexpr TileFunction kTwo[13] = {nullptr,
                                            tile_bf16<kBlocks, 2, 1>,
                                            tile_bf16<kBlocks, 2, 2>,
                                            tile_bf16<kBlocks, 2, 3>,
                                            tile_bf16<kBlocks, 2, 4>,
                                            nullptr,
                                            tile_bf16<kBlocks, 2, 6>,
                                            nullptr,
                                            tile_bf16<kBlocks, 2, 8>,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            tile_bf16<kBlocks, 2, 12>};
  static constexpr TileFunction kFour[13] = {nullptr,
                                             tile_bf16<kBlocks, 4, 1>,
                                             tile_bf16<kBlocks, 4, 2>,
                                             tile_bf16<kBlocks, 4, 3>,
                                             tile_bf16<kBlocks, 4, 4>,
                                             nullptr,
                                             tile_bf16<kBlocks, 4, 6>,
                                             nullptr,
                                             nullptr,
                                             nullptr,
                                             nullptr,
                                             nullptr,
                                             nullptr};
  return (groups == 4 ? kFour : groups == 2 ? kTwo : kOne)[width];
}

struct Bf16Kernel {
  static constexpr int64_t kInputBytes = 2;
  static int64_t group_bytes(Layout) { return 64; }
  static TileFunction tile(Layout layout, int64_t groups, int64_t width) {
    return layout == Layout::kFp4Words ? tile_of<true>(groups, width)
                                       : tile_of<false>(groups, width);
  }
};

template <int kTokens>
inline void add_words(Bits weights, const uint32_t* x, Floats sums[kTokens]) {
#pragma GCC unroll 16
  for (int i = 0; i < kTokens; ++i) sums[i] = dot_bf16(sums[i], weights, set1_u32(x[i]));
}

template <int kGroups, int kTokens>
struct FusedBf16 {
  static void run(const LinearTask& t) {
    const Bits table = load_b(kE2m1.bf16);
    const auto* x = static_cast<const uint32_t*>(t.x) + t.token_begin * (t.k_padded / 2);
    run_fused<kGroups, kTokens>(t, [&](Bits v, int64_t k, Floats* sums) {
      const uint32_t* at = x + k / 2 * kTokens;
      add_words<kTokens>(lookup32_u16(table, v), at, sums);
      add_words<kTokens>(lookup32_u16(table, shift_right_u16<4>(v)), at + kTokens, sums);
      add_words<kTokens>(lookup32_u16(table, shift_right_u16<8>(v)), at + 2 * kTokens, sums);
      add_words<kTokens>(lookup32_u16(table, shift_right_u16<12>(v)), at + 3 * kTokens, sums);
    });
  }
};

}  // namespace

void linear_bf16(const LinearTask& task) {
  const int64_t n_tokens = task.token_end - task.token_begin;
  if (task.layout == Layout::kFp4Words && n_tokens >= 1 && n_tokens <= kFusedTokens)
    fused_of<FusedBf16>(task.groups, n_tokens)(task);
  else
    run_linear<Bf16Kernel>(task);
}

}  // namespace sextant::SX_AVX512_NAMESPACE
