// The inner loops of measure.cpp, one an ISA. A leaf header (see isa.h).
#pragma once

#include <stdint.h>

namespace sextant::cpu {

// XOR of n words (a multiple of 512 bytes is read at a time; the rest is left out).
uint64_t avx2_read(const uint64_t* words, int64_t n);
// rounds of independent multiply-adds in registers; returns the float32 operations done.
double avx2_flops(int64_t rounds);
double avx512_flops(int64_t rounds);
uint64_t avx512_read(const uint64_t* words, int64_t n);
double avx512_bf16_flops(int64_t rounds);  // vdpbf16ps; needs cpu_info().avx512_bf16

}  // namespace sextant::cpu
