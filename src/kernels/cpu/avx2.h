// The AVX2 functions behind the table "avx2". A leaf header (see isa.h).
#pragma once

#include "kernels/cpu/isa.h"

namespace sextant::cpu {

// Each file fills its own pointers.
void avx2_fill_linear(Isa* isa);
void avx2_fill_attention(Isa* isa);
void avx2_fill_rows(Isa* isa);

}  // namespace sextant::cpu
