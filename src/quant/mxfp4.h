// MXFP4: blocks of 32 E2M1 codes along K with a UE8M0 scale (a power of two), no tensor scale
// (nvfp4.md 1.3, 1.4 G, 2.5). Codes are packed as in NVFP4. Writers differ in how they choose the
// exponent and, ModelOpt, in how they round.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/view.h"

namespace sextant {

inline constexpr int64_t kMxfp4Block = 32;

enum class Mxfp4Profile : uint8_t {
  kRoundUp,            // DeepSeek, FlashInfer: 2^ceil(log2(amax / 6)), nearest even; never clips
  kModelOpt,           // the same exponent; ties to the smaller magnitude, exact zeros are -0
  kCompressedTensors,  // floor(log2(amax)) - 2, amax first rounded up from mantissa 1.75 on
  kTruncate,           // vLLM's templated branch: 2^floor(log2(amax / 6)); clips
};
std::string_view mxfp4_profile_name(Mxfp4Profile profile);  // "round-up", "modelopt", ...
std::optional<Mxfp4Profile> mxfp4_profile_from_name(std::string_view name);

// One block of 32 values to 16 bytes of codes and the scale byte; NaN in the block gives scale
// 0xFF.
void mxfp4_quantize_block(Mxfp4Profile profile, const float* x, uint8_t* codes, uint8_t* scale);

// A matrix [n, k], k a multiple of 32: codes [n, k / 2], scales [n, k / 32].
void mxfp4_quantize(Mxfp4Profile profile, Mat<const float> x, Mat<uint8_t> codes,
                    Mat<uint8_t> scales);
void mxfp4_dequantize(Mat<const uint8_t> codes, Mat<const uint8_t> scales, Mat<float> out);

// MXFP4 to NVFP4 without loss: the codes stay, each exponent e serves its two blocks of 16 as
// S = 2^(e - log2 g). E4M3 has the powers of two 2^-9 .. 2^8, so exponents may span 17. Blocks
// whose codes are all zero do not count. Returns g (a power of two) and fills nvfp4_scales
// [n, k / 16]; the error names the block that has a NaN scale or says how far exponents span.
Result<float> mxfp4_to_nvfp4(Mat<const uint8_t> codes, Mat<const uint8_t> scales,
                             Mat<uint8_t> nvfp4_scales);

}  // namespace sextant
