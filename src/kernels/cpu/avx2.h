// The AVX2 functions behind the table "avx2". A leaf header (see isa.h).
#pragma once

#include "kernels/cpu/isa.h"

namespace sextant::cpu {

// Pointers of avx2_linear.cpp and avx2_rows.cpp into one struct; each fills its own.
void avx2_fill_linear(Isa* isa);
void avx2_fill_rows(Isa* isa);

}  // namespace sextant::cpu
