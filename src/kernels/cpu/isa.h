// What a processor-specific file offers to the drivers in this folder (linear.cpp, attention.cpp,
// elementwise.cpp): plain structs of pointers and numbers, nothing else. A leaf header: per-ISA
// files include it and intrinsics only, so that their objects hold no weak symbol (see
// CMakeLists.txt).
#pragma once

#include <stdint.h>

namespace sextant::cpu {

// Resident kinds of weights, one more than WeightForm: FP8 with and without block scales are summed
// differently.
enum Kind {
  kKindF32,
  kKindBf16,
  kKindF16,
  kKindFp8,
  kKindFp8Blocks,
  kKindNvfp4,
  kKindMxfp4,
  kKinds
};

// A group is 32 output rows, interleaved so that one k of 8 or 16 rows is one vector (layout.h).
constexpr int64_t kGroupRows = 32;
constexpr int64_t kHalfRows = 16;    // rows of a panel tile
constexpr int kMaxDirectTokens = 4;  // tokens of one direct call
constexpr int kMaxTileTokens = 6;    // tokens of one panel tile

// One group times n tokens straight from the packed codes: totals [n][32] = sum over k, scales of
// blocks applied, row multipliers not.
struct DirectArgs {
  const uint8_t* group;
  int64_t k;        // columns as laid out (a multiple of 16 for the FP4 kinds)
  int64_t block_k;  // kKindFp8Blocks
  const float* x;   // [n][k], rounded to BF16 already under a16
  int64_t x_stride;
  float* totals;
};

// Columns [k_begin, k_end) of a group as float32 without scales: panel [2][k_end - k_begin][16],
// and the scales of its blocks: scales [2][blocks][16]. k_begin is a multiple of the block.
struct ExpandArgs {
  const uint8_t* group;
  int64_t k;
  int64_t block_k;
  int64_t k_begin;
  int64_t k_end;
  float* panel;
  float* scales;
};

// totals [n][32] (16 of them used) += panel [k][16] times x [n][k], in the order of the direct
// kernels: along k, each block of block_k columns summed from zero, then scaled and added; without
// scales one chain.
struct TileArgs {
  const float* panel;
  const float* scales;  // [blocks][16]; null without scales
  int64_t k;
  int64_t block_k;
  const float* x;
  int64_t x_stride;
  float* totals;
};

// Keys and values of one block of positions as float32, heads of dim_padded, zero past the end.
// All pointers to float arrays are 32-byte aligned, dim_padded is a multiple of 8.
struct AttendArgs {
  const float* q;       // [n_rows][dim_padded]
  const float* keys;    // [kKeyBlock][dim_padded]
  const float* values;  // [kKeyBlock][dim_padded]
  int64_t n_rows;
  int64_t dim_padded;
  const int32_t* begin;  // valid keys of the block for each row: [begin, end)
  const int32_t* end;
  float scale;
  float* scores;  // [n_rows][kKeyBlock], scratch
  float* max;     // [n_rows], running
  float* sum;     // [n_rows], running
  float* out;     // [n_rows][dim_padded], running
};
constexpr int64_t kKeyBlock = 32;

struct Isa {
  const char* name;                                                  // of the ops table
  void (*direct[kKinds][kMaxDirectTokens])(const DirectArgs& args);  // [tokens - 1]
  void (*expand[kKinds])(const ExpandArgs& args);
  void (*tile_plain[kMaxTileTokens])(const TileArgs& args);
  void (*tile_scaled[kMaxTileTokens])(const TileArgs& args);
  // out [n_padded] = x [n], rounded to BF16 if wanted, then zeros.
  void (*prepare)(const float* x, int64_t n, bool bf16, float* out, int64_t n_padded);

  void (*attend)(const AttendArgs& args);
  // out [n] = BF16 x as float32.
  void (*widen_bf16)(const uint16_t* x, int64_t n, float* out);
  void (*narrow_bf16)(const float* x, int64_t n, uint16_t* out);

  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*add)(float* x, const float* y, int64_t n);
};

}  // namespace sextant::cpu
