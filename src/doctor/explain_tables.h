// What explain.cpp looks up: the names of global scales, the SNR table of docs/nvfp4.md 4.1, and
// what engines make of a number that is no scale (1.7).
#pragma once

#include <array>
#include <limits>

#include "doctor/explain.h"

namespace sextant {

inline constexpr std::array<ScaleName, 7> kScaleNames = {{
    {"input_scale", ScaleKind::kInput, ScalePrior::kMultiplier,
     "ModelOpt's activation scale: a multiplier, amax / 2688"},
    {"input_scale_2", ScaleKind::kInput, ScalePrior::kMultiplier,
     "Quark's activation scale: a multiplier, amax / 2688"},
    {"input_global_scale", ScaleKind::kInput, ScalePrior::kDivisor,
     "compressed-tensors' activation scale: a divisor, 2688 / amax"},
    {"weight_scale_2", ScaleKind::kWeight, ScalePrior::kMultiplier,
     "ModelOpt's global scale of a weight: a multiplier, amax / 2688"},
    {"weight_global_scale", ScaleKind::kWeight, ScalePrior::kDivisor,
     "compressed-tensors' global scale of a weight: a divisor, 2688 / amax"},
    {"k_scale", ScaleKind::kCache, ScalePrior::kMultiplier,
     "the scale of the KV cache's keys: a multiplier, amax / 448 of an FP8 cache, amax / 2688 of "
     "an NVFP4 cache"},
    {"v_scale", ScaleKind::kCache, ScalePrior::kMultiplier,
     "the scale of the KV cache's values: a multiplier, amax / 448 of an FP8 cache, amax / 2688 "
     "of an NVFP4 cache"},
}};

// nvfp4.md 4.1, from tools/golden/nvfp4_snr.py table.
inline constexpr std::array<SnrRow, 23> kSnrRows = {{
    {12, 12, 0.01, 0.01, 0.03, 0.03, 0.01, 99.93, 0},
    {8, 8, 0.12, 0.18, 0.51, 0.35, 0.19, 98.62, 0},
    {6, 6, 0.50, 0.72, 2.03, 0.78, 0.73, 94.43, 0},
    {4, 4, 2.09, 2.90, 7.35, 1.96, 2.69, 77.60, 0},
    {3, 3, 4.38, 5.79, 12.12, 3.56, 5.18, 56.54, 0},
    {2, 2, 9.57, 11.38, 16.81, 6.86, 9.95, 25.26, 0},
    {1.5, 1.5, 14.12, 15.45, 18.47, 9.55, 13.62, 10.63, 0},
    {1, 1, 18.82, 19.16, 19.59, 13.32, 17.88, 2.15, 0},
    {0.5, 0.5, 20.32, 20.53, 20.39, 18.81, 20.55, 0.098, 0},
    {0.1, 0.1, 20.41, 20.65, 20.70, 23.20, 20.90, 0.002, 0},
    {0, 0, 20.38, 20.62, 20.70, 23.38, 20.90, 0, 0},
    {-1, -7, 20.38, 20.62, 20.70, 23.38, 20.90, 0, 0},
    {-9, -9, 20.38, 20.62, 20.70, 23.33, 20.90, 0, 0},
    {-10, -10, 20.38, 20.62, 20.70, 23.15, 20.90, 0, 0},
    {-11, -11, 20.38, 20.62, 20.69, 22.80, 20.90, 0, 1.15},
    {-12, -12, 20.38, 20.62, 20.50, 16.45, 20.87, 0, 49.2},
    {-13, -13, 20.38, 20.55, 19.55, 12.61, 20.61, 0, 83.6},
    {-14, -14, 20.26, 20.07, 17.59, 10.41, 19.46, 0, 94.1},
    {-15, -15, 19.52, 18.50, 10.57, 9.84, 16.75, 0, 95.0},
    {-16, -16, 17.46, 16.25, 2.05, 8.32, 11.00, 0, 96.5},
    {-17, -17, 15.56, 5.32, 0.31, 5.28, 4.08, 0, 98.3},
    {-18, -18, 0.84, 0.36, 0.05, 1.58, 0.57, 0, 99.7},
    {-19, -std::numeric_limits<double>::infinity(), 0, 0, 0, 0, 0, 0, 100},
}};

// By ScaleFault.
inline constexpr std::array<std::string_view, 6> kFaultNames = {"none", "nan",      "infinite",
                                                                "zero", "negative", "denormal"};
inline constexpr std::array<std::string_view, 6> kFaultSentences = {
    "",
    "not a number",
    "infinite in float32",
    "zero in float32",
    "negative",
    "a denormal float32, whose reciprocal overflows or is flushed"};

// What G is to the quantizer, where the stored number is no scale.
enum class BadEncode : uint8_t { kZero, kInfinite, kNan, kNegative };

struct BadScaleEffect {
  ScaleKind kind;
  BadEncode encode;
  const char* path;
  const char* effect;
};
inline constexpr std::array<BadScaleEffect, 19> kBadScaleEffects = {{
    {ScaleKind::kInput, BadEncode::kZero, "vLLM CUDA",
     "G = 0: block scales 0x00, codes 0; alpha = inf, and inf * 0 = NaN in every output"},
    {ScaleKind::kInput, BadEncode::kZero, "FlashInfer, TensorRT-LLM",
     "block scales 0x00, codes +6; alpha is usually inf: NaN in every output"},
    {ScaleKind::kInput, BadEncode::kZero, "vLLM emulation", "0/0: NaN"},
    {ScaleKind::kInput, BadEncode::kZero, "compressed-tensors in PyTorch", "a division by 0"},
    {ScaleKind::kInput, BadEncode::kInfinite, "vLLM CUDA, FlashInfer, TensorRT-LLM",
     "G = inf: block scales 0x7E, codes +-6; alpha = 0: outputs 0, but NaN for every block that is "
     "all zero (inf * 0, block scale 0x7F)"},
    {ScaleKind::kInput, BadEncode::kInfinite, "vLLM emulation", "NaN for blocks that are all zero"},
    {ScaleKind::kInput, BadEncode::kInfinite, "compressed-tensors in PyTorch", "NaN"},
    {ScaleKind::kInput, BadEncode::kNan, "vLLM CUDA, FlashInfer, TensorRT-LLM",
     "block scales 0x7F: NaN everywhere"},
    {ScaleKind::kInput, BadEncode::kNan, "vLLM emulation, compressed-tensors in PyTorch", "NaN"},
    {ScaleKind::kInput, BadEncode::kNegative, "vLLM CUDA",
     "block scales get their sign bit (0xB8 for G = -1); what hardware makes of a negative UE4M3 "
     "is unverified"},
    // alpha = g_input * g_weight: the weight's part of it is 1 / G.
    {ScaleKind::kWeight, BadEncode::kZero, "every engine",
     "alpha = inf: outputs +-inf, NaN where the sum is 0"},
    {ScaleKind::kWeight, BadEncode::kInfinite, "every engine",
     "alpha = 0: exact zeros, no NaN, a silently dead layer"},
    {ScaleKind::kWeight, BadEncode::kNan, "every engine", "alpha = NaN: NaN in every output"},
    {ScaleKind::kWeight, BadEncode::kNegative, "every engine",
     "alpha is negative: finite outputs of the wrong sign"},
    // By arithmetic: x / scale is stored, times scale is read.
    {ScaleKind::kCache, BadEncode::kZero, "a quantized cache",
     "stores x / inf = 0 and reads back 0 * inf = NaN"},
    {ScaleKind::kCache, BadEncode::kInfinite, "a quantized cache that saturates",
     "stores x / 0 clamped, or NaN for 0 / 0, and reads back 0 or NaN"},
    {ScaleKind::kCache, BadEncode::kInfinite, "a quantized cache that does not saturate",
     "stores x / 0 = NaN"},
    {ScaleKind::kCache, BadEncode::kNan, "a quantized cache", "stores and reads back NaN"},
    {ScaleKind::kCache, BadEncode::kNegative, "a quantized cache",
     "FP8 gives the values back; an NVFP4 block scale gets a sign bit, unverified on hardware"},
}};

}  // namespace sextant
