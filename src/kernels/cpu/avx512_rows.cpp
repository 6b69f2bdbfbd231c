// Operations on rows: packing the input of a linear, RMS norm, rotary embedding, SiLU, addition.
// Per-ISA code; sums in one fixed order that depends on the row's length only.
#include "kernels/cpu/avx512_kernels.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/avx512_vec.h"

namespace sextant::SX_AVX512_NAMESPACE {
namespace {

// BF16 bits of each lane in its upper half, lower half zero; nearest even. A NaN is kept apart from
// the carry: its upper half with the quiet bit set.
Bits rounded_to_bf16(Floats x) {
  const Bits bits = as_bits(x);
  const Bits odd = and_b(shift_right_u32<16>(bits), set1_u32(1));
  const Bits rounded = add_u32(bits, add_u32(odd, set1_u32(0x7FFF)));
  const Bits quiet = select_b(set1_u32(0x00400000U), set1_u32(0xFFFFFFFFU), bits);
  const Bits chosen = as_bits(select_f(nan_lanes(x), as_floats(quiet), as_floats(rounded)));
  return and_b(chosen, set1_u32(0xFFFF0000U));
}

}  // namespace

void pack_input_bf16(const float* x, int64_t x_stride, int64_t width, int64_t k, int64_t k_padded,
                     uint32_t* out) {
  for (int64_t token = 0; token < width; ++token) {
    const float* row = x + token * x_stride;
    for (int64_t c = 0; c < k_padded; c += 16) {
      uint32_t words[16];
      store_b(words, rounded_to_bf16(load_f(row + c, first_lanes(k - c < 0 ? 0 : k - c))));
      uint32_t* to = out + c / 2 * width + token;
      for (int pair = 0; pair < 8; ++pair)
        to[pair * width] = words[2 * pair] >> 16 | words[2 * pair + 1];
    }
  }
}

void pack_input_amx(const float* x, int64_t token, int64_t k, int64_t k_stride, uint16_t* out) {
  for (int64_t c = 0; c < k_stride; c += 16) {
    uint32_t words[16];
    store_b(words, rounded_to_bf16(load_f(x + c, first_lanes(k - c < 0 ? 0 : k - c))));
    uint16_t* to = out + amx_input_at(token, c, k_stride);
    for (int i = 0; i < 16; ++i) to[i] = static_cast<uint16_t>(words[i] >> 16);
  }
}

void pack_input_f32(const float* x, int64_t x_stride, int64_t width, int64_t k, int64_t k_padded,
                    bool round_to_bf16, float* out) {
  for (int64_t token = 0; token < width; ++token) {
    const float* row = x + token * x_stride;
    for (int64_t c = 0; c < k_padded; c += 16) {
      float values[16];
      const Floats v = load_f(row + c, first_lanes(k - c < 0 ? 0 : k - c));
      store_f(values, round_to_bf16 ? as_floats(rounded_to_bf16(v)) : v);
      for (int i = 0; i < 16; ++i) out[(c + i) * width + token] = values[i];
    }
  }
}

void rms_norm_row(const float* x, const float* weight, float eps, int64_t d, float* y) {
  Floats sums[4] = {zero_f(), zero_f(), zero_f(), zero_f()};
  for (int64_t c = 0; c < d; c += 16) {
    const Floats v = load_f(x + c, first_lanes(d - c));
    sums[c / 16 % 4] = fma_f(v, v, sums[c / 16 % 4]);
  }
  const float squares = reduce_add_f(add_f(add_f(sums[0], sums[1]), add_f(sums[2], sums[3])));
  const Floats scale = set1_f(1.0F / __builtin_sqrtf(squares / static_cast<float>(d) + eps));
  for (int64_t c = 0; c < d; c += 16) {
    const LaneMask m = first_lanes(d - c);
    store_f(y + c, mul_f(mul_f(load_f(x + c, m), scale), load_f(weight + c, m)), m);
  }
}

void rope_head(float* v, int64_t half, const float* cos, const float* sin) {
  for (int64_t c = 0; c < half; c += 16) {
    const LaneMask m = first_lanes(half - c);
    const Floats a = load_f(v + c, m);
    const Floats b = load_f(v + half + c, m);
    const Floats co = load_f(cos + c, m);
    const Floats si = load_f(sin + c, m);
    store_f(v + c, sub_f(mul_f(a, co), mul_f(b, si)), m);
    store_f(v + half + c, add_f(mul_f(b, co), mul_f(a, si)), m);
  }
}

void silu_mul_row(const float* gate, const float* up, int64_t n, float* out) {
  const Floats one = set1_f(1.0F);
  for (int64_t c = 0; c < n; c += 16) {
    const LaneMask m = first_lanes(n - c);
    const Floats g = load_f(gate + c, m);
    const Floats s = div_f(g, add_f(one, exp_f(sub_f(zero_f(), g))));
    store_f(out + c, mul_f(s, load_f(up + c, m)), m);
  }
}

void add_row(float* x, const float* y, int64_t n) {
  for (int64_t c = 0; c < n; c += 16) {
    const LaneMask m = first_lanes(n - c);
    store_f(x + c, add_f(load_f(x + c, m), load_f(y + c, m)), m);
  }
}

}  // namespace sextant::SX_AVX512_NAMESPACE
