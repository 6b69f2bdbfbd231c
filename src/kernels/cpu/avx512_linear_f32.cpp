// Linear layers with float32 input: chains of float32 FMA. Weights of up to 16 bits are exact in
// float32; BF16 pairs (stored, or the panel of NVFP4 and FP8) are split into two vectors on the
// way.
#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_tiles.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

// How the two vectors of a pair (k, k + 1) are read.
struct FromBf16 {
  static constexpr bool kBlocks = false;
  static constexpr bool kScaled = true;
  static constexpr int64_t kGroupBytes = 64;
  static void load(const unsigned char* w, int64_t, Floats out[2]) {
    const Bits v = load_b(w);
    out[0] = as_floats(shift_left_u32<16>(v));
    out[1] = as_floats(and_b(v, set1_u32(0xFFFF0000U)));
  }
};
// The panel of kFp4Words: sums by blocks.
struct FromCodes : FromBf16 {
  static constexpr bool kBlocks = true;
};
// The panel of kNvfp4, whose weights have their block scales in them: sums by blocks all the same,
// so that NVFP4 inputs give the bits of every other table (ActForm::kNvfp4).
struct FromScaled : FromBf16 {
  static constexpr bool kBlocks = true;
  static constexpr bool kScaled = false;
};
struct FromF16 {
  static constexpr bool kBlocks = false;
  static constexpr int64_t kGroupBytes = 32;
  static void load(const unsigned char* w, int64_t pair_bytes, Floats out[2]) {
    out[0] = load_f16(w);
    out[1] = load_f16(w + pair_bytes / 2);
  }
};
struct FromF32 {
  static constexpr bool kBlocks = false;
  static constexpr int64_t kGroupBytes = 64;
  static void load(const unsigned char* w, int64_t pair_bytes, Floats out[2]) {
    out[0] = as_floats(load_b(w));
    out[1] = as_floats(load_b(w + pair_bytes / 2));
  }
};

template <class Weights, int kGroups, int kTokens>
inline void add_pairs(const unsigned char* w, int64_t w_stride, const float* x, int64_t n_pairs,
                      Floats acc[kGroups][kTokens]) {
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    Floats weights[kGroups][2];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g)
      Weights::load(w + g * Weights::kGroupBytes, w_stride, weights[g]);
#pragma GCC unroll 16
    for (int part = 0; part < 2; ++part) {
#pragma GCC unroll 16
      for (int i = 0; i < kTokens; ++i) {
        const Floats input = set1_f(x[part * kTokens + i]);
#pragma GCC unroll 16
        for (int g = 0; g < kGroups; ++g) acc[g][i] = fma_f(weights[g][part], input, acc[g][i]);
      }
    }
    w += w_stride;
    x += 2 * kTokens;
  }
}

template <class Weights, int kGroups, int kTokens>
void tile_f32(const Tile& t) {
  Floats acc[kGroups][kTokens];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) acc[g][i] = tile_start(t, g, i);
  const auto* x = static_cast<const float*>(t.x);
  if constexpr (Weights::kBlocks)
    run_blocks<kGroups, kTokens, 2 * kTokens, Weights::kScaled>(
        t, x, acc, [&](const unsigned char* w, const float* from, int64_t n, auto& sums) {
          add_pairs<Weights, kGroups, kTokens>(w, t.w_stride, from, n, sums);
        });
  else
    add_pairs<Weights, kGroups, kTokens>(t.w, t.w_stride, x, t.n_pairs, acc);
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) tile_finish(t, g, i, acc[g][i]);
}

template <class Weights>
TileFunction tile_of(int64_t groups, int64_t width) {
  static constexpr TileFunction kOne[13] = {nullptr,
                                            tile_f32<Weights, 1, 1>,
                                            tile_f32<Weights, 1, 2>,
                                            tile_f32<Weights, 1, 3>,
                                            tile_f32<Weights, 1, 4>,
                                            nullptr,
                                            tile_f32<Weights, 1, 6>,
                                            nullptr,
                                            tile_f32<Weights, 1, 8>,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            tile_f32<Weights, 1, 12>};
  static constexpr TileFunction kTwo[13] = {nullptr,
                                            tile_f32<Weights, 2, 1>,
                                            tile_f32<Weights, 2, 2>,
                                            tile_f32<Weights, 2, 3>,
                                            tile_f32<Weights, 2, 4>,
                                            nullptr,
                                            tile_f32<Weights, 2, 6>,
                                            nullptr,
                                            tile_f32<Weights, 2, 8>,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            tile_f32<Weights, 2, 12>};
  static constexpr TileFunction kFour[13] = {nullptr,
                                             tile_f32<Weights, 4, 1>,
                                             tile_f32<Weights, 4, 2>,
                                             tile_f32<Weights, 4, 3>,
                                             tile_f32<Weights, 4, 4>,
                                             nullptr,
                                             tile_f32<Weights, 4, 6>,
                                             nullptr,
                                             nullptr,
                                             nullptr,
                                             nullptr,
                                             nullptr,
                                             nullptr};
  return (groups == 4 ? kFour : groups == 2 ? kTwo : kOne)[width];
}

struct F32Kernel {
  static constexpr int64_t kInputBytes = 4;
  static int64_t group_bytes(Layout layout) { return layout == Layout::kF16 ? 32 : 64; }
  static TileFunction tile(Layout layout, int64_t groups, int64_t width) {
    if (layout == Layout::kF32) return tile_of<FromF32>(groups, width);
    if (layout == Layout::kFp4Words) return tile_of<FromCodes>(groups, width);
    if (layout == Layout::kNvfp4) return tile_of<FromScaled>(groups, width);
    if (layout == Layout::kF16) return tile_of<FromF16>(groups, width);
    return tile_of<FromBf16>(groups, width);
  }
};

template <int kTokens>
inline void add_codes(Bits table, Bits index, const float* x, Floats sums[kTokens]) {
  const Floats weights = as_floats(lookup16_u32(table, index));
#pragma GCC unroll 16
  for (int i = 0; i < kTokens; ++i) sums[i] = fma_f(weights, set1_f(x[i]), sums[i]);
}

template <int kGroups, int kTokens>
struct FusedF32 {
  static void run(const LinearTask& t) {
    const Bits table = load_b(kE2m1.f32);
    const auto* x = static_cast<const float*>(t.x) + t.token_begin * t.k_padded;
    run_fused<kGroups, kTokens>(t, [&](Bits v, int64_t k, Floats* sums) {
      const float* at = x + k * kTokens;
      add_codes<kTokens>(table, v, at, sums);
      add_codes<kTokens>(table, shift_right_u32<16>(v), at + kTokens, sums);
      add_codes<kTokens>(table, shift_right_u32<4>(v), at + 2 * kTokens, sums);
      add_codes<kTokens>(table, shift_right_u32<20>(v), at + 3 * kTokens, sums);
      add_codes<kTokens>(table, shift_right_u32<8>(v), at + 4 * kTokens, sums);
      add_codes<kTokens>(table, shift_right_u32<24>(v), at + 5 * kTokens, sums);
      add_codes<kTokens>(table, shift_right_u32<12>(v), at + 6 * kTokens, sums);
      add_codes<kTokens>(table, shift_right_u32<28>(v), at + 7 * kTokens, sums);
    });
  }
};

}  // namespace

void linear_f32(const LinearTask& task) {
  const int64_t n_tokens = task.token_end - task.token_begin;
  if (task.layout == Layout::kFp4Words && n_tokens >= 1 && n_tokens <= kFusedTokens)
    fused_of<FusedF32>(task.groups, n_tokens)(task);
  else
    run_linear<F32Kernel>(task);
}

}  // namespace sextant::SX_AVX512_NAMESPACE
