// NVFP4: blocks of 16 E2M1 codes along K, an E4M3 scale a block, one float32 scale a tensor; the
// value of an element is q * S * g. This header owns what the bits mean and the block quantizers of
// every writer that matters, each bit for bit (nvfp4.md 1.4 to 1.6). Padding, swizzles and other
// orders of the same bytes are in nvfp4_layout.h; which file stores which form is checkpoint/'s.
//
// The seven profiles differ in how they divide by 6, whether they saturate, what they make of zero
// blocks and in the last rounding before a code. All arithmetic is float32, never fused.
// rcp.approx.ftz.f32 is IEEE 1/x with inputs and results below 2^-126 flushed (rcp_ftz).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/view.h"

namespace sextant {

inline constexpr int64_t kNvfp4Block = 16;
inline constexpr float kNvfp4Range = 2688.0F;  // 6 * 448: amax / g of a tensor that fits exactly

enum class Nvfp4Profile : uint8_t {
  kA,            // vLLM CUDA
  kB,            // FlashInfer and TensorRT-LLM, fast math
  kT,            // Transformer-Engine exact (FlashInfer without fast math)
  kC,            // compressed-tensors
  kD,            // ModelOpt NVFP4QTensor: the cast of the block scale does not saturate
  kE,            // torchao
  kFourOverSix,  // per block the better of max 6 and max 4, by squared error
};
inline constexpr int kNvfp4Profiles = 7;
std::string_view nvfp4_profile_name(Nvfp4Profile profile);  // "A", ..., "four-over-six"
std::optional<Nvfp4Profile> nvfp4_profile_from_name(std::string_view name);

// A tensor's scale in either convention: the multiplier g (ModelOpt, torchao: about amax / 2688) or
// the divisor G (compressed-tensors, CUDA quantizers: 2688 / amax).
struct Nvfp4Global {
  float value = 1.0F;
  bool is_divisor = false;
};
bool nvfp4_takes_divisor(Nvfp4Profile profile);  // false for D and E

// The scale a writer of this profile derives from a tensor's amax: f32(amax / 2688),
// f32(2688 / amax), or f32(1536 / amax) for four-over-six (256 * 6, so that 256 * 1.5 fits E4M3).
// A tensor of zeros has 1. Kept within 2^-126 .. 2^126, where both conventions are normal numbers;
// only an amax below 2688 * 2^-126 meets the limit, and its codes are then merely coarser.
Nvfp4Global nvfp4_global_scale(Nvfp4Profile profile, float amax);
float nvfp4_multiplier(float amax);  // g
float nvfp4_divisor(float amax);     // G

// One block of 16 values to 8 bytes of codes and the scale byte. global is g or G as
// nvfp4_takes_divisor says. Defined for every input: codes that a framework leaves undefined
// (profile C, x / d not a number) are +6.
void nvfp4_quantize_block(Nvfp4Profile profile, const float* x, float global, uint8_t* codes,
                          uint8_t* scale);

// The scale byte of that alone, for those who count what a scale does to data.
uint8_t nvfp4_block_scale(Nvfp4Profile profile, const float* x, float global);

// A matrix [n, k], k a multiple of 16: codes [n, k / 2], scales [n, k / 16]. Rows are independent:
// callers split rows over threads.
void nvfp4_quantize(Nvfp4Profile profile, Mat<const float> x, float global, Mat<uint8_t> codes,
                    Mat<uint8_t> scales);

// The step of a block: f32(S * g), or f32(S / G) for a divisor. Every reader that wants exact
// values multiplies codes by this and by nothing else: f32(q * step).
float nvfp4_step(uint8_t scale, Nvfp4Global global);

// Codes [n, k / 2] and scales [n, ceil(k / block)] to out [n, k]; block is 16 but in a few weight-
// only files (32). k even.
void nvfp4_dequantize(Mat<const uint8_t> codes, Mat<const uint8_t> scales, Nvfp4Global global,
                      Mat<float> out, int64_t block = kNvfp4Block);

// The largest magnitude, NaN if there is one (the maximum of the magnitudes' bits).
float amax_of(const float* x, int64_t n);

// rcp.approx.ftz.f32 as the document models it.
float rcp_ftz(float a);

}  // namespace sextant
