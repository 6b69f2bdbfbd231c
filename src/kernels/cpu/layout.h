// The row-interleaved layout of the AVX2 table: groups of 32 rows, one after the other, each a
// stream that decode reads from front to back. Codes first, then the scales of the group.
//
//   F32         [k][32] float
//   BF16        [k][2][8] pairs: half h, lane l holds rows 16h + l (low) and 16h + l + 8 (high)
//   F16         [k][32]
//   FP8         [k][32] bytes, rows in the order 0-7, 16-23, 8-15, 24-31; then, with block scales,
//               float [blocks][32]
//   NVFP4,      [k / 16][2][4][16] words of 16 bits: block, half, quad of columns, word; then scale
//   MXFP4       bytes [k / 16][32] (MXFP4 has each of its scales twice)
//
// A word holds the four codes of columns 4q .. 4q + 3 of one row, as the file's two bytes do. Word
// w of a half is its row 8 * (w / 4 % 2) + w % 4 + 4 * (w / 8): unpacking bytes within 128-bit
// lanes then gives rows 0-7 and 8-15 in order.
//
// NaN codes and scales, and negative block scales, are dealt with here so that kernels need not: a
// NaN makes the row's multiplier NaN, a negative scale turns the signs of its codes.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace sextant::cpu {

Kind kind_of(const PackedLinear& w);
int64_t padded_k(WeightForm form, int64_t k);
int64_t group_stride(const PackedLinear& w);  // bytes

PackedLinear pack_groups(const WeightSource& source, const char* table, ThreadPool& pool);

}  // namespace sextant::cpu
