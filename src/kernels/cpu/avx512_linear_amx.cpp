// Linear layers with BF16 input on AMX tiles: the exact BF16 weights of the other BF16 path as
// tiles of 16 pairs of k and 16 rows, which is how a panel lies in memory. Every step of 32 of k is
// one TDPBF16PS into the sums of its row and token, in ascending order, for one token as for
// hundreds. Needs AMX_TILE and AMX_BF16.
#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_tiles.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

constexpr int64_t kStep = kAmxStep;

// Sums of one token and its rows, from `sums` (16 rows apart) to y.
void write_rows(const LinearTask& t, const float* sums, int64_t g, float* y, bool first,
                const float* scales, bool last) {
  const LaneMask valid = first_lanes(t.rows - g * kGroupRows);
  Floats acc = load_f(sums);
  if (scales != nullptr) {
    const Floats scale = load_f(scales + g * kGroupRows);
    acc = first ? mul_f(acc, scale) : fma_f(acc, scale, load_f(y + g * kGroupRows, valid));
  }
  if (last && t.multiplier != nullptr) acc = mul_f(acc, load_f(t.multiplier + g * kGroupRows));
  store_f(y + g * kGroupRows, acc, valid);
}

// Blocks of 16 of one group, decoded to the tile of a step; the second half zero where kBlocks
// is 1. Always inlined: the tables stay in registers.
template <int kBlocks>
[[gnu::always_inline]] inline void decode_step(const Nvfp4Decoder& decoder,
                                               const unsigned char* block, int64_t groups,
                                               int64_t g, unsigned char* out) {
#pragma GCC unroll 2
  for (int64_t b = 0; b < kBlocks; ++b) {
    const unsigned char* at = block + b * groups * 144;
    const Nvfp4Decoder::Scale scale = decoder.scale(at + g * 16);
    const unsigned char* codes = at + groups * 16 + g * 128;
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half) {
      Bits w[4];
      decoder.eight(codes + half * 64, scale, w);
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) store_b(out + (b * 8 + half * 4 + i) * 64, w[i]);
    }
  }
  for (int64_t i = kBlocks * 8; i < 16; ++i) store_b(out + i * 64, as_bits(zero_f()));
}

// Decode, up to 16 tokens. A unit is one step of one group; while a unit is decoded into one of two
// tile buffers the product of the unit before it runs from the other. Sums stay in tiles 0 to 3.
// The two buffers are kept this small because a load waits for stores to the same offset within
// 4 KB.
template <int kGroups>
struct Fused {
  const LinearTask& t;
  const Nvfp4Decoder decoder;
  const unsigned char* x;  // the step's input
  unsigned char* out;      // the unit's buffer; the other one is ready
  unsigned char* ready;

  template <int kSum>
  void product() {
    tile_load<6>(ready, 64);
    tile_dot_bf16<kSum, 4, 6>();
  }
  void swap() {
    unsigned char* other = ready;
    ready = out;
    out = other;
  }
  template <int kBlocks, int g>
  void unit(const unsigned char* block, bool first) {
    prefetch_part(block, g, 288);
    decode_step<kBlocks>(decoder, block, kGroups, g, out);
    if constexpr (g == 0) {
      if (!first) product<kGroups - 1>();
      tile_load<4>(x, 64);
    } else {
      product<g - 1>();
    }
    swap();
  }
  template <int kBlocks>
  void step(const unsigned char* block, bool first) {
    unit<kBlocks, 0>(block, first);
    if constexpr (kGroups > 1) unit<kBlocks, 1>(block, first);
    if constexpr (kGroups > 2) unit<kBlocks, 2>(block, first);
    if constexpr (kGroups > 3) unit<kBlocks, 3>(block, first);
    x += kAmxTileBytes;
  }
};

template <int kGroups>
void fused_nvfp4(const LinearTask& t) {
  auto* ring = static_cast<unsigned char*>(t.panel);
  Fused<kGroups> f{t, Nvfp4Decoder(),
                   static_cast<const unsigned char*>(t.x) + t.token_begin * t.x_stride * 2, ring,
                   ring + kAmxTileBytes};
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  const int64_t n_full = t.k_padded / kStep;
  for (int64_t step = 0; step < n_full; ++step)
    f.template step<2>(t.data + step * kGroups * 288, step == 0);
  if (t.k_padded % kStep != 0) f.template step<1>(t.data + n_full * kGroups * 288, n_full == 0);
  f.template product<kGroups - 1>();
  constexpr int64_t kRow = kSuperRows * 4;
  tile_store<0>(t.sums, kRow);
  tile_store<1>(t.sums + 16, kRow);
  tile_store<2>(t.sums + 32, kRow);
  tile_store<3>(t.sums + 48, kRow);
  for (int64_t i = 0; i < t.token_end - t.token_begin; ++i)
    for (int64_t g = 0; g < kGroups; ++g)
      write_rows(t, t.sums + i * kSuperRows + g * kGroupRows, g,
                 t.y + (t.token_begin + i) * t.y_stride, true, nullptr, true);
}

// One chunk of k of a supergroup: tiles start at w, `stride` bytes from a pair of k to the next, 64
// from a group to the next.
struct Chunk {
  const unsigned char* w = nullptr;
  int64_t stride = 0;
  int64_t n_steps = 0;
  bool fresh = false;  // sums start at zero
};

// One block of 16 tokens times all groups: sums in tiles 0 to 3, a row of them 64 floats.
// The input of many tokens lies in L3; the next block's is fetched `next` bytes ahead.
template <int kGroups>
void multiply(const Chunk& c, const unsigned char* x, int64_t next, float* sums) {
  constexpr int64_t kRow = kSuperRows * 4;
  if (c.fresh) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
  } else {
    tile_load<0>(sums, kRow);
    if constexpr (kGroups > 1) tile_load<1>(sums + 16, kRow);
    if constexpr (kGroups > 2) tile_load<2>(sums + 32, kRow);
    if constexpr (kGroups > 3) tile_load<3>(sums + 48, kRow);
  }
  const unsigned char* w = c.w;
  for (int64_t step = 0; step < c.n_steps; ++step) {
#pragma GCC unroll 16
    for (int64_t line = 0; line < kAmxTileBytes; line += kLine) prefetch(x + next + line);
    tile_load<4>(x, 64);
    tile_load<5>(w, c.stride);
    tile_dot_bf16<0, 4, 5>();
    if constexpr (kGroups > 1) {
      tile_load<6>(w + 64, c.stride);
      tile_dot_bf16<1, 4, 6>();
    }
    if constexpr (kGroups > 2) {
      tile_load<7>(w + 128, c.stride);
      tile_dot_bf16<2, 4, 7>();
    }
    if constexpr (kGroups > 3) {
      tile_load<5>(w + 192, c.stride);
      tile_dot_bf16<3, 4, 5>();
    }
    x += kAmxTileBytes;
    w += 16 * c.stride;
  }
  tile_store<0>(sums, kRow);
  if constexpr (kGroups > 1) tile_store<1>(sums + 16, kRow);
  if constexpr (kGroups > 2) tile_store<2>(sums + 32, kRow);
  if constexpr (kGroups > 3) tile_store<3>(sums + 48, kRow);
}

// The weights of k [k0, k1) as tiles: a panel, or the stored pairs themselves.
Chunk prepare(const LinearTask& t, int64_t k0, int64_t k1) {
  Chunk c;
  auto* panel = static_cast<unsigned char*>(t.panel);
  c.w = panel;
  c.stride = t.groups * 64;
  c.n_steps = (k1 - k0 + kStep - 1) / kStep;
  const unsigned char* stored = t.data + k0 / 2 * c.stride;  // BF16
  if (t.layout == Layout::kNvfp4) {
    panel_nvfp4(t, k0, k1, panel);
  } else if (t.layout == Layout::kFp8) {
    panel_fp8(t, k0, k1, panel);
  } else if ((k1 - k0) % kStep == 0) {
    c.w = stored;
    return c;
  } else {
    for (int64_t at = 0; at < (k1 - k0) / 2 * c.stride; at += 64)
      store_b(panel + at, load_b(stored + at));
  }
  for (int64_t pair = (k1 - k0) / 2; pair < c.n_steps * kStep / 2; ++pair)
    for (int64_t g = 0; g < t.groups; ++g)
      store_b(panel + pair * c.stride + g * 64, as_bits(zero_f()));
  return c;
}

void multiply_tokens(const LinearTask& t, const Chunk& chunk, const unsigned char* x) {
  for (int64_t token = 0; token < t.token_end - t.token_begin; token += kAmxTokens) {
    const int64_t next = kAmxTokens * t.x_stride * 2;
    const unsigned char* from = x + token * t.x_stride * 2;
    float* sums = t.sums + token * kSuperRows;
    switch (t.groups) {
      case 1: multiply<1>(chunk, from, next, sums); break;
      case 2: multiply<2>(chunk, from, next, sums); break;
      case 3: multiply<3>(chunk, from, next, sums); break;
      default: multiply<4>(chunk, from, next, sums);
    }
  }
}

void chunked(const LinearTask& t) {
  const int64_t length = t.block_k != 0 ? t.block_k : kChunk;
  for (int64_t k0 = 0; k0 < t.k_padded; k0 += length) {
    const int64_t k1 = smaller(k0 + length, t.k_padded);
    Chunk chunk = prepare(t, k0, k1);
    chunk.fresh = k0 == 0 || t.block_k != 0;
    multiply_tokens(t, chunk,
                    static_cast<const unsigned char*>(t.x) + t.token_begin * t.x_stride * 2 +
                        k0 / kStep * kAmxTileBytes);
    const bool last = k1 == t.k_padded;
    if (t.block_k == 0 && !last) continue;
    const float* scales = t.block_k != 0 ? t.scales + k0 / length * t.scale_stride : nullptr;
    for (int64_t i = 0; i < t.token_end - t.token_begin; ++i)
      for (int64_t g = 0; g < t.groups; ++g)
        write_rows(t, t.sums + i * kSuperRows + g * kGroupRows, g,
                   t.y + (t.token_begin + i) * t.y_stride, k0 == 0, scales, last);
  }
}

}  // namespace

void linear_amx(const LinearTask& task) {
  const int64_t n_tokens = task.token_end - task.token_begin;
  tiles_configure(smaller(n_tokens, kAmxTokens));
  if (task.layout == Layout::kNvfp4 && n_tokens <= kAmxTokens) {
    using Function = void (*)(const LinearTask&);
    constexpr Function kFused[4] = {fused_nvfp4<1>, fused_nvfp4<2>, fused_nvfp4<3>, fused_nvfp4<4>};
    kFused[task.groups - 1](task);
  } else {
    chunked(task);
  }
  tiles_release();
}

}  // namespace sextant::SX_AVX512_NAMESPACE
