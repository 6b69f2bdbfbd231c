// Linear layers with BF16 input: chains of vdpbf16ps. Packed weights become exact BF16 (an E2M1
// code times an E4M3 scale has six significant bits), so the only roundings are those of the
// float32 sums. Needs AVX512_BF16.
#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_tiles.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

template <int kGroups, int kTokens>
void tile_bf16(const Tile& t) {
  Floats acc[kGroups][kTokens];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) acc[g][i] = tile_start(t, g, i);
  const unsigned char* w = t.w;
  const auto* x = static_cast<const uint32_t*>(t.x);
  for (int64_t pair = 0; pair < t.n_pairs; ++pair) {
    Bits weights[kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) weights[g] = load_b(w + g * 64);
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) {
      const Bits input = set1_u32(x[i]);
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) acc[g][i] = dot_bf16(acc[g][i], weights[g], input);
    }
    w += t.w_stride;
    x += kTokens;
  }
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) tile_finish(t, g, i, acc[g][i]);
}

struct Bf16Kernel {
  static constexpr int64_t kInputBytes = 2;
  static int64_t group_bytes(Layout) { return 64; }
  static TileFunction tile(Layout, int64_t groups, int64_t width) {
    static constexpr TileFunction kOne[13] = {
        nullptr, tile_bf16<1, 1>, tile_bf16<1, 2>, tile_bf16<1, 3>, tile_bf16<1, 4>,
        nullptr, tile_bf16<1, 6>, nullptr,         tile_bf16<1, 8>, nullptr,
        nullptr, nullptr,         tile_bf16<1, 12>};
    static constexpr TileFunction kTwo[13] = {
        nullptr, tile_bf16<2, 1>, tile_bf16<2, 2>, tile_bf16<2, 3>, tile_bf16<2, 4>,
        nullptr, tile_bf16<2, 6>, nullptr,         tile_bf16<2, 8>, nullptr,
        nullptr, nullptr,         tile_bf16<2, 12>};
    static constexpr TileFunction kFour[13] = {
        nullptr, tile_bf16<4, 1>, tile_bf16<4, 2>, tile_bf16<4, 3>, tile_bf16<4, 4>,
        nullptr, tile_bf16<4, 6>, nullptr,         nullptr,         nullptr,
        nullptr, nullptr,         nullptr};
    return (groups == 4 ? kFour : groups == 2 ? kTwo : kOne)[width];
  }
};

// Decode: NVFP4 weights go from memory through registers into the chains, no panel between.
template <int kGroups, int kTokens>
void fused_nvfp4(const LinearTask& t) {
  const Nvfp4Decoder decoder;
  Floats acc[kGroups][kTokens];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) acc[g][i] = zero_f();
  const unsigned char* block = t.data;
  const auto* x = static_cast<const uint32_t*>(t.x) + t.token_begin * (t.k_padded / 2);
  for (int64_t b = 0; b < t.k_padded / 16; ++b) {
#pragma GCC unroll 16
    for (int64_t line = 0; line < kGroups * 144; line += kLine)
      prefetch(block + kPrefetchBytes + line);
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) {
      const Nvfp4Decoder::Scale scale = decoder.scale(block + g * 16);
      const unsigned char* codes = block + kGroups * 16 + g * 128;
#pragma GCC unroll 16
      for (int half = 0; half < 2; ++half) {
        Bits w[4];
        decoder.eight(codes + half * 64, scale, w);
#pragma GCC unroll 16
        for (int pair = 0; pair < 4; ++pair)
#pragma GCC unroll 16
          for (int i = 0; i < kTokens; ++i)
            acc[g][i] = dot_bf16(acc[g][i], w[pair], set1_u32(x[(half * 4 + pair) * kTokens + i]));
      }
    }
    block += kGroups * 144;
    x += 8 * kTokens;
  }
  Tile tile;
  tile.y = t.y + t.token_begin * t.y_stride;
  tile.y_stride = t.y_stride;
  tile.rows = t.rows;
  tile.first = true;
  tile.multiplier = t.multiplier;
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < kTokens; ++i) tile_finish(tile, g, i, acc[g][i]);
}

using FusedFunction = void (*)(const LinearTask&);
constexpr FusedFunction kFused[4][4] = {
    {fused_nvfp4<1, 1>, fused_nvfp4<1, 2>, fused_nvfp4<1, 3>, fused_nvfp4<1, 4>},
    {fused_nvfp4<2, 1>, fused_nvfp4<2, 2>, fused_nvfp4<2, 3>, fused_nvfp4<2, 4>},
    {fused_nvfp4<3, 1>, fused_nvfp4<3, 2>, fused_nvfp4<3, 3>, fused_nvfp4<3, 4>},
    {fused_nvfp4<4, 1>, fused_nvfp4<4, 2>, fused_nvfp4<4, 3>, fused_nvfp4<4, 4>}};

}  // namespace

void linear_bf16(const LinearTask& task) {
  const int64_t n_tokens = task.token_end - task.token_begin;
  if (task.layout == Layout::kNvfp4 && n_tokens >= 1 && n_tokens <= 4)
    kFused[task.groups - 1][n_tokens - 1](task);
  else
    run_linear<Bf16Kernel>(task);
}

}  // namespace sextant::SX_AVX512_NAMESPACE
