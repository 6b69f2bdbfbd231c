// MXFP4 blocks, and their lossless form as NVFP4.
#include "quant/mxfp4.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/nvfp4.h"
#include "quant/ue8m0.h"

namespace sextant {
namespace {

constexpr std::array<std::string_view, 4> kMxfp4Names = {"round-up", "modelopt",
                                                         "compressed-tensors", "truncate"};

// floor(log2(amax)) - 2 as a byte, after the mantissa's carry: adding a quarter of the mantissa's
// range moves 1.75 and above to the next exponent. Saturates at both ends.
uint8_t encode_floor(float amax) {
  const uint32_t u = std::bit_cast<uint32_t>(amax);
  if (u > 0x7F800000U) return 0xFF;
  const uint32_t exponent = std::min((u + (1U << 21)) >> 23, 0xFFU);
  return static_cast<uint8_t>(exponent < 2 ? 0 : exponent - 2);
}

uint8_t encode_scale(Mxfp4Profile profile, float amax) {
  switch (profile) {
    case Mxfp4Profile::kRoundUp:
    case Mxfp4Profile::kModelOpt: return ue8m0_encode_up(amax / 6.0F);
    case Mxfp4Profile::kCompressedTensors: return encode_floor(amax);
    case Mxfp4Profile::kTruncate: return ue8m0_encode_down(amax / 6.0F);
  }
  return 0xFF;
}

// Strict comparisons, so ties go down and NaN is 0; the sign bit of everything that is not
// positive.
uint8_t encode_modelopt(float t) {
  const float a = t < 0.0F ? -t : t;
  const int magnitude = int{a > 0.25F} + int{a > 0.75F} + int{a > 1.25F} + int{a > 1.75F} +
                        int{a > 2.5F} + int{a > 3.5F} + int{a > 5.0F};
  return static_cast<uint8_t>(magnitude | (t > 0.0F ? 0 : 8));
}

void check_shapes(int64_t rows, int64_t k, int64_t codes_rows, int64_t codes_cols,
                  int64_t scales_rows, int64_t scales_cols) {
  SX_CHECK(k % kMxfp4Block == 0 && codes_rows == rows && codes_cols == k / 2 &&
               scales_rows == rows && scales_cols == k / kMxfp4Block,
           "[{}, {}] with codes [{}, {}] and scales [{}, {}]", rows, k, codes_rows, codes_cols,
           scales_rows, scales_cols);
}

bool all_zero(const uint8_t* codes) {
  return std::all_of(codes, codes + kMxfp4Block / 2, [](uint8_t b) { return (b & 0x77) == 0; });
}

}  // namespace

std::string_view mxfp4_profile_name(Mxfp4Profile profile) {
  return kMxfp4Names[static_cast<size_t>(profile)];
}
std::optional<Mxfp4Profile> mxfp4_profile_from_name(std::string_view name) {
  const auto* const found = std::find(kMxfp4Names.begin(), kMxfp4Names.end(), name);
  if (found == kMxfp4Names.end()) return std::nullopt;
  return static_cast<Mxfp4Profile>(found - kMxfp4Names.begin());
}

void mxfp4_quantize_block(Mxfp4Profile profile, const float* x, uint8_t* codes, uint8_t* scale) {
  *scale = encode_scale(profile, amax_of(x, kMxfp4Block));
  const float d = ue8m0_decode(*scale);
  const auto encode = [&](float value) {
    return profile == Mxfp4Profile::kModelOpt ? encode_modelopt(value / d) : e2m1_encode(value / d);
  };
  for (int64_t j = 0; j < kMxfp4Block / 2; ++j)
    codes[j] = pack_nibbles(encode(x[2 * j]), encode(x[2 * j + 1]));
}

void mxfp4_quantize(Mxfp4Profile profile, Mat<const float> x, Mat<uint8_t> codes,
                    Mat<uint8_t> scales) {
  check_shapes(x.rows, x.cols, codes.rows, codes.cols, scales.rows, scales.cols);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t b = 0; b < scales.cols; ++b)
      mxfp4_quantize_block(profile, &x.at(i, b * kMxfp4Block), &codes.at(i, b * (kMxfp4Block / 2)),
                           &scales.at(i, b));
}

void mxfp4_dequantize(Mat<const uint8_t> codes, Mat<const uint8_t> scales, Mat<float> out) {
  check_shapes(out.rows, out.cols, codes.rows, codes.cols, scales.rows, scales.cols);
  for (int64_t i = 0; i < out.rows; ++i) {
    const uint8_t* row = codes.data + i * codes.stride;
    for (int64_t j = 0; j < out.cols; ++j)
      out.at(i, j) = e2m1_decode(nibble(row, j)) * ue8m0_decode(scales.at(i, j / kMxfp4Block));
  }
}

Result<float> mxfp4_to_nvfp4(Mat<const uint8_t> codes, Mat<const uint8_t> scales,
                             Mat<uint8_t> nvfp4_scales) {
  SX_CHECK(codes.cols == scales.cols * (kMxfp4Block / 2) && codes.rows == scales.rows &&
               nvfp4_scales.rows == scales.rows && nvfp4_scales.cols == scales.cols * 2,
           "codes [{}, {}], scales [{}, {}], NVFP4 scales [{}, {}]", codes.rows, codes.cols,
           scales.rows, scales.cols, nvfp4_scales.rows, nvfp4_scales.cols);
  constexpr int kUp = 8;     // 2^8 is E4M3's largest power of two
  constexpr int kSpan = 17;  // down to 2^-9
  int low = 255;
  int high = -1;
  for (int64_t i = 0; i < scales.rows; ++i)
    for (int64_t b = 0; b < scales.cols; ++b) {
      const int e = scales.at(i, b);
      if (e == 0xFF)
        return fail(Code::kModel,
                    "expected finite UE8M0 block scales, found NaN (0xFF) at row {}, block {}", i,
                    b);
      if (all_zero(&codes.at(i, b * (kMxfp4Block / 2)))) continue;
      low = std::min(low, e);
      high = std::max(high, e);
    }
  if (high < 0) low = high = 127;  // nothing but zeros
  if (high - low > kSpan)
    return fail(Code::kUnsupported,
                "block exponents span 2^{} to 2^{}; NVFP4 block scales hold powers of two only {} "
                "octaves apart, so this tensor has no lossless NVFP4 form",
                low - 127, high - 127, kSpan);
  // g = 2^k is a normal number; small tensors then use smaller scales.
  const int k = std::max(high - 127 - kUp, -126);
  for (int64_t i = 0; i < scales.rows; ++i)
    for (int64_t b = 0; b < scales.cols; ++b) {
      const int power = std::clamp(scales.at(i, b) - 127 - k, kUp - kSpan, kUp);
      const float S = std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
      nvfp4_scales.at(i, 2 * b) = nvfp4_scales.at(i, 2 * b + 1) = e4m3_encode(S);
    }
  return std::bit_cast<float>(static_cast<uint32_t>(k + 127) << 23);
}

}  // namespace sextant
