// The two AVX-512 tables' ordinary half: packing, splitting work over threads, scratch. Compiled
// without AVX-512 flags; the kernels proper are behind avx512_kernels.h. The emulation test
// compiles the same sources into namespace avx512_emulated.
#pragma once

#include "kernels/cpu/avx512_kernels.h"
#include "kernels/ops.h"

namespace sextant::SX_AVX512_NAMESPACE {

// What multiplies BF16 input where the layout allows it; otherwise the input is rounded to BF16 and
// multiplied as float32. kTiles: AMX.
enum class Bf16Unit : uint8_t { kNone, kDot, kTiles };

// R16 layout of avx512_kernels.h, as the table with `unit` reads it. NVFP4 keeps its codes; a
// negative scale moves its sign into them, a NaN scale makes the row's multiplier NaN. MXFP4 takes
// the same form with a power of two a row in the multiplier; where a row's scales are more than 31
// octaves apart, and for FP8 scale blocks that are no multiple of 16 along k, the weights become
// float32.
PackedLinear pack_r16(const WeightSource& source, ThreadPool& pool, const char* table,
                      Bf16Unit unit);

// ops.h linear.
void linear(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
            std::span<const Mat<float>> ys, ThreadPool& pool, Bf16Unit unit);

// The whole table: `base` with everything that this folder has put in its place.
Ops table(const Ops& base, Bf16Unit unit);

}  // namespace sextant::SX_AVX512_NAMESPACE
