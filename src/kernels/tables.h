// The ops tables of this build, one function each; only select.cpp and the tables themselves
// include it. Each ISA's table may be called for on any processor: it is only filled pointers.
#pragma once

#include "kernels/ops.h"

namespace sextant {

const Ops& ref_ops();
#if defined(SX_HAVE_AVX2)
const Ops& avx2_ops();
#endif
#if defined(SX_HAVE_AVX512)
const Ops& avx512_ops();         // needs cpu_info().avx512_bf16
const Ops& avx512_nobf16_ops();  // needs cpu_info().avx512
const Ops& amx_ops();            // needs cpu_info().avx512, amx_bf16 and amx_permitted()
bool amx_permitted();            // asks the system once for the tile registers
#endif

}  // namespace sextant
