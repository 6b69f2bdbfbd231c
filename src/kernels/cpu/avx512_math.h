// exp of 16 floats for softmax and SiLU. Per-ISA code in an unnamed namespace.
#pragma once

#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two parts (Cody and Waite
// 1980), exp(r) by its Taylor polynomial of degree 7 (remainder below 2^-27 of the value). Within
// 2 ulp; 0 below -150, infinity above 89, NaN stays NaN (the clamps give their second operand).
inline Floats exp_f(Floats x) {
  x = min_f(set1_f(89.0F), max_f(set1_f(-150.0F), x));
  const Floats n = round_f(mul_f(x, set1_f(1.44269504F)));
  Floats r = fma_f(n, set1_f(-0.693359375F), x);
  r = fma_f(n, set1_f(2.12194440e-4F), r);
  Floats p = set1_f(1.0F / 5040.0F);
  p = fma_f(p, r, set1_f(1.0F / 720.0F));
  p = fma_f(p, r, set1_f(1.0F / 120.0F));
  p = fma_f(p, r, set1_f(1.0F / 24.0F));
  p = fma_f(p, r, set1_f(1.0F / 6.0F));
  p = fma_f(p, r, set1_f(0.5F));
  p = fma_f(p, r, set1_f(1.0F));
  p = fma_f(p, r, set1_f(1.0F));
  return scale_f(p, n);
}

}  // namespace
}  // namespace sextant::SX_AVX512_NAMESPACE
