// The block quantizers. Each profile is two functions: the scale byte and what elements are
// multiplied by (A, B, T, four-over-six) or divided by (C, D, E). Elements then share one loop.
#include "quant/nvfp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

// Four elements at a time, in the compiler's own vector types: the same operations on any CPU.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
using Word2 = uint64_t __attribute__((vector_size(16)));

constexpr int32_t kMagnitude = 0x7FFFFFFF;
constexpr int32_t kInfinity = 0x7F800000;
constexpr float kSixth = 1.0F / 6.0F;  // 0x3E2AAAAB, also what rcp.approx gives
static_assert(std::bit_cast<uint32_t>(kSixth) == 0x3E2AAAABU);

constexpr std::array<std::string_view, kNvfp4Profiles> kNvfp4Names = {
    "A", "B", "T", "C", "D", "E", "four-over-six"};

// What __hmax2 does: NaN is dropped where there is another value.
float amax_dropping_nan(const float* x) {
  const float amax = amax_of(x, kNvfp4Block);
  if (amax == amax) return amax;
  int32_t largest = 0;
  bool any = false;
  for (int64_t i = 0; i < kNvfp4Block; ++i) {
    const int32_t a = std::bit_cast<int32_t>(x[i]) & kMagnitude;
    if (a > kInfinity) continue;
    largest = std::max(largest, a);
    any = true;
  }
  return any ? std::bit_cast<float>(largest) : amax;
}

// What a block becomes before its elements do.
struct Plan {
  uint8_t scale;
  float by;
};

// A: tests the rounded scale. B: tests the block's amax, so a block whose scale underflows divides
// by zero. T: B with IEEE division, the other association, and a finite limit.
Plan plan_a(const float* x, float G) {
  const uint8_t scale = e4m3_encode(G * (amax_dropping_nan(x) * kSixth));
  const float S = e4m3_decode(scale);
  return {scale, S == 0.0F ? 0.0F : rcp_ftz(S * rcp_ftz(G))};
}
Plan plan_b(const float* x, float G) {
  const float amax = amax_dropping_nan(x);
  const uint8_t scale = e4m3_encode(G * (amax * kSixth));
  return {scale, amax == 0.0F ? 0.0F : rcp_ftz(e4m3_decode(scale) * rcp_ftz(G))};
}
Plan plan_t(const float* x, float G) {
  const float amax = amax_dropping_nan(x);
  if (amax == 0.0F) return {0, 0.0F};
  const uint8_t scale = e4m3_encode(amax * (G * kSixth));
  const float by = 1.0F / (e4m3_decode(scale) * (1.0F / G));
  constexpr float kLimit = std::numeric_limits<float>::max();
  return {scale, kLimit < by ? kLimit : by};
}
// C: clamps before the cast; a byte that decodes to zero becomes 0.125.
Plan plan_c(const float* x, float G) {
  const float t = G * (amax_of(x, kNvfp4Block) / 6.0F);
  uint8_t scale = e4m3_encode(t);
  if ((scale & 0x7F) == 0) scale = 0x20;
  return {scale, e4m3_decode(scale) / G};
}
// D: an amax of zero becomes scale 1; the cast does not saturate.
Plan plan_d(const float* x, float g) {
  const float t = amax_of(x, kNvfp4Block) / (6.0F * g);
  const uint8_t scale = e4m3_encode_nonsaturating(t == 0.0F ? 1.0F : t);
  return {scale, e4m3_decode(scale) * g};
}
// E: never below the smallest normal scale.
Plan plan_e(const float* x, float g) {
  const float t = amax_of(x, kNvfp4Block) / 6.0F / g;
  const uint8_t scale = e4m3_encode(t < 0x1p-6F ? 0x1p-6F : t);
  return {scale, g * e4m3_decode(scale)};
}

// e2m1_encode_magnitude: a comparison that holds is -1, and for NaN none does.
Int4 magnitudes(Float4 t) {
  const Float4 a = std::bit_cast<Float4>(std::bit_cast<Int4>(t) & kMagnitude);
  return 7 + (a <= 0.25F) + (a < 0.75F) + (a <= 1.25F) + (a < 1.75F) + (a <= 2.5F) + (a < 3.5F) +
         (a <= 5.0F);
}
// The sign bit at its place in a code; none for NaN.
Int4 signs(Float4 t) { return (std::bit_cast<Int4>(t) >> 28) & 8 & (t == t); }

// The four codes of x, by profile: how a quotient or product is formed and where its sign comes
// from. C has none for an exact zero; D takes it from x / d < 0, so a quotient of -0 has none
// either; the others keep it as hardware does.
template <Nvfp4Profile kProfile>
Int4 four_codes(Float4 x, float by) {
  if constexpr (kProfile == Nvfp4Profile::kC) {
    const Float4 t = x / by;
    return magnitudes(t) | (signs(t) & (x != 0.0F));
  } else if constexpr (kProfile == Nvfp4Profile::kD) {
    const Float4 t = x / by;
    return magnitudes(t) | ((t < 0.0F) & 8);
  } else if constexpr (kProfile == Nvfp4Profile::kE) {
    const Float4 t = x / by;
    return magnitudes(t) | signs(t);
  } else {
    const Float4 t = x * by;
    return magnitudes(t) | signs(t);
  }
}

// 16 elements to 8 bytes. In a 64-bit lane an even code lies in the low half and the odd one after
// it in the high half: lane | lane >> 28 has both in its low byte. Lane 0 of the four vectors holds
// bytes 0, 2, 4, 6 of the block, lane 1 bytes 1, 3, 5, 7.
template <Nvfp4Profile kProfile>
void encode(const float* x, float by, uint8_t* out) {
  Word2 lanes = {0, 0};
  for (int v = 0; v < 4; ++v) {
    Float4 four;
    std::memcpy(&four, x + 4 * v, sizeof(four));
    const auto pairs = std::bit_cast<Word2>(four_codes<kProfile>(four, by));
    lanes |= ((pairs | (pairs >> 28)) & 0xFFU) << (16 * v);
  }
  const uint64_t bytes = lanes[0] | (lanes[1] << 8);
  std::memcpy(out, &bytes, sizeof(bytes));
}

// Both candidates' squared errors in double, in element order; 4 wins only if strictly better.
void four_over_six_block(const float* x, float G, uint8_t* codes, uint8_t* scale) {
  const float amax = amax_dropping_nan(x);
  if (amax == 0.0F) {
    *scale = 0;
    std::fill_n(codes, kNvfp4Block / 2, uint8_t{0});
    return;
  }
  const float inverse = rcp_ftz(G);
  const float t6 = G * (amax * kSixth);
  const float t[2] = {t6, t6 * 1.5F};
  uint8_t scales[2];
  uint8_t candidates[2][kNvfp4Block / 2];
  double errors[2] = {0, 0};
  for (int c = 0; c < 2; ++c) {
    scales[c] = e4m3_encode(t[c]);
    const float d = e4m3_decode(scales[c]) * inverse;
    encode<Nvfp4Profile::kFourOverSix>(x, rcp_ftz(d), candidates[c]);
    for (int64_t i = 0; i < kNvfp4Block; ++i) {
      const double error =
          static_cast<double>(e2m1_decode(nibble(candidates[c], i))) * static_cast<double>(d) -
          static_cast<double>(x[i]);
      errors[c] += error * error;
    }
  }
  const int best = errors[1] < errors[0] ? 1 : 0;
  *scale = scales[best];
  std::copy_n(candidates[best], kNvfp4Block / 2, codes);
}

template <Nvfp4Profile kProfile>
Plan plan_of(const float* x, float global) {
  constexpr auto plan = kProfile == Nvfp4Profile::kA   ? plan_a
                        : kProfile == Nvfp4Profile::kB ? plan_b
                        : kProfile == Nvfp4Profile::kT ? plan_t
                        : kProfile == Nvfp4Profile::kC ? plan_c
                        : kProfile == Nvfp4Profile::kD ? plan_d
                                                       : plan_e;
  return plan(x, global);
}

template <Nvfp4Profile kProfile>
void block(const float* x, float global, uint8_t* codes, uint8_t* scale) {
  if constexpr (kProfile == Nvfp4Profile::kFourOverSix) {
    four_over_six_block(x, global, codes, scale);
  } else {
    const Plan plan = plan_of<kProfile>(x, global);
    *scale = plan.scale;
    encode<kProfile>(x, plan.by, codes);
  }
}

template <Nvfp4Profile kProfile>
void matrix(Mat<const float> x, float global, Mat<uint8_t> codes, Mat<uint8_t> scales) {
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t b = 0; b < scales.cols; ++b)
      block<kProfile>(&x.at(i, b * kNvfp4Block), global, &codes.at(i, b * (kNvfp4Block / 2)),
                      &scales.at(i, b));
}

template <class F>
void with_profile(Nvfp4Profile profile, F f) {
  switch (profile) {
    case Nvfp4Profile::kA: return f.template operator()<Nvfp4Profile::kA>();
    case Nvfp4Profile::kB: return f.template operator()<Nvfp4Profile::kB>();
    case Nvfp4Profile::kT: return f.template operator()<Nvfp4Profile::kT>();
    case Nvfp4Profile::kC: return f.template operator()<Nvfp4Profile::kC>();
    case Nvfp4Profile::kD: return f.template operator()<Nvfp4Profile::kD>();
    case Nvfp4Profile::kE: return f.template operator()<Nvfp4Profile::kE>();
    case Nvfp4Profile::kFourOverSix: return f.template operator()<Nvfp4Profile::kFourOverSix>();
  }
}

// An amax of zero (or NaN, as compressed-tensors has it) gives 1.
float scale_of(float numerator, float denominator, float amax) {
  if (!(amax > 0.0F)) return 1.0F;
  return std::clamp(numerator / denominator, 0x1p-126F, 0x1p126F);
}

}  // namespace

std::string_view nvfp4_profile_name(Nvfp4Profile profile) {
  return kNvfp4Names[static_cast<size_t>(profile)];
}
std::optional<Nvfp4Profile> nvfp4_profile_from_name(std::string_view name) {
  const auto* const found = std::find(kNvfp4Names.begin(), kNvfp4Names.end(), name);
  if (found == kNvfp4Names.end()) return std::nullopt;
  return static_cast<Nvfp4Profile>(found - kNvfp4Names.begin());
}
bool nvfp4_takes_divisor(Nvfp4Profile profile) {
  return profile != Nvfp4Profile::kD && profile != Nvfp4Profile::kE;
}

float nvfp4_multiplier(float amax) { return scale_of(amax, kNvfp4Range, amax); }
float nvfp4_divisor(float amax) { return scale_of(kNvfp4Range, amax, amax); }
Nvfp4Global nvfp4_global_scale(Nvfp4Profile profile, float amax) {
  if (!nvfp4_takes_divisor(profile)) return {nvfp4_multiplier(amax), false};
  if (profile == Nvfp4Profile::kFourOverSix) return {scale_of(6.0F * 256.0F, amax, amax), true};
  return {nvfp4_divisor(amax), true};
}

void nvfp4_quantize_block(Nvfp4Profile profile, const float* x, float global, uint8_t* codes,
                          uint8_t* scale) {
  with_profile(profile, [&]<Nvfp4Profile kProfile>() { block<kProfile>(x, global, codes, scale); });
}

uint8_t nvfp4_block_scale(Nvfp4Profile profile, const float* x, float global) {
  uint8_t scale = 0;
  with_profile(profile, [&]<Nvfp4Profile kProfile>() {
    if constexpr (kProfile == Nvfp4Profile::kFourOverSix) {
      uint8_t codes[kNvfp4Block / 2];
      four_over_six_block(x, global, codes, &scale);
    } else {
      scale = plan_of<kProfile>(x, global).scale;
    }
  });
  return scale;
}

void nvfp4_quantize(Nvfp4Profile profile, Mat<const float> x, float global, Mat<uint8_t> codes,
                    Mat<uint8_t> scales) {
  SX_CHECK(x.cols % kNvfp4Block == 0 && codes.rows == x.rows && codes.cols == x.cols / 2 &&
               scales.rows == x.rows && scales.cols == x.cols / kNvfp4Block,
           "x [{}, {}], codes [{}, {}], scales [{}, {}]", x.rows, x.cols, codes.rows, codes.cols,
           scales.rows, scales.cols);
  with_profile(profile,
               [&]<Nvfp4Profile kProfile>() { matrix<kProfile>(x, global, codes, scales); });
}

float nvfp4_step(uint8_t scale, Nvfp4Global global) {
  const float S = e4m3_decode(scale);
  return global.is_divisor ? S / global.value : S * global.value;
}

void nvfp4_dequantize(Mat<const uint8_t> codes, Mat<const uint8_t> scales, Nvfp4Global global,
                      Mat<float> out, int64_t block_size) {
  SX_CHECK(block_size > 0 && block_size % 2 == 0 && out.cols % 2 == 0 && codes.rows == out.rows &&
               codes.cols == out.cols / 2 && scales.rows == out.rows &&
               scales.cols == ceil_div(out.cols, block_size),
           "codes [{}, {}], scales [{}, {}], out [{}, {}], block {}", codes.rows, codes.cols,
           scales.rows, scales.cols, out.rows, out.cols, block_size);
  for (int64_t i = 0; i < out.rows; ++i) {
    const uint8_t* row = codes.data + i * codes.stride;
    for (int64_t b = 0; b < scales.cols; ++b) {
      const float step = nvfp4_step(scales.at(i, b), global);
      const int64_t end = std::min(out.cols, (b + 1) * block_size);
      for (int64_t j = b * block_size; j < end; ++j)
        out.at(i, j) = e2m1_decode(nibble(row, j)) * step;
    }
  }
}

float amax_of(const float* x, int64_t n) {
  Int4 largest = {0, 0, 0, 0};
  const int64_t n_fours = n / 4 * 4;
  for (int64_t i = 0; i < n_fours; i += 4) {
    Int4 four;
    std::memcpy(&four, x + i, sizeof(four));
    four &= kMagnitude;
    largest = four > largest ? four : largest;
  }
  int32_t amax = std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
  for (int64_t i = n_fours; i < n; ++i)
    amax = std::max(amax, std::bit_cast<int32_t>(x[i]) & kMagnitude);
  return std::bit_cast<float>(amax);
}

float rcp_ftz(float a) {
  if (a != a) return a;
  if (std::abs(a) < 0x1p-126F) return std::copysign(std::numeric_limits<float>::infinity(), a);
  const float r = 1.0F / a;
  return std::abs(r) < 0x1p-126F ? std::copysign(0.0F, r) : r;
}

}  // namespace sextant
