// One record a linear, whatever the dialect (house.md section 2): codes, block scales, a multiplier
// per output range, an optional activation multiplier, the stored dtype, and where each byte came
// from. One internal convention: multipliers g (nvfp4.md, Notation). Trivial views into mapped
// files; the Checkpoint that made them owns the mappings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "quant/dtype.h"

namespace sextant {

// A tensor of the checkpoint; empty (file == nullptr) where the record has none.
struct TensorRef {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;
  explicit operator bool() const { return info != nullptr; }
  std::span<const std::byte> bytes() const { return file->bytes(*info); }
};

enum class Scheme : uint8_t {
  kF32,  // weight [n, k]
  kF16,
  kBf16,
  kFp8Tensor,   // F8_E4M3 [n, k]; one multiplier a range
  kFp8Channel,  // F8_E4M3 [n, k]; scales: F32 or BF16, one a row
  kFp8Block,    // F8_E4M3 [n, k]; scales [ceil(n/bn), ceil(k/bk)] F32, BF16 or E8M0: multipliers
  kNvfp4,       // E2M1 codes [n, k/2], E4M3 scales [n, ceil(k/16)], one multiplier g a range
  kMxfp4,       // E2M1 codes [n, k/2], UE8M0 scales [n, k/32]
};
std::string_view scheme_name(Scheme scheme);  // "nvfp4", "fp8-block", "bf16", ...

// Rows [row_begin, row_end) of a linear have this global scale. q/k/v and gate/up keep their own,
// always.
struct ScaleRange {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  float g = 1.0F;       // multiplier, what computation uses
  float stored = 1.0F;  // as the file has it
  bool is_divisor =
      false;  // stored is G = 1/g (compressed-tensors): exact dequantization divides, f32(S / G)
};

struct LinearRecord {
  std::string module;  // name in the file without suffix: "model.layers.0.mlp.down_proj"
  Scheme scheme = Scheme::kBf16;
  int64_t n = 0;         // output rows
  int64_t k = 0;         // input columns
  TensorRef weight;      // codes or plain weights, row-major
  TensorRef scales;      // block or channel scales, where the scheme has them
  int64_t block_n = 1;   // rows a scale covers (128 for kFp8Block)
  int64_t block_k = 16;  // columns a scale covers
  std::vector<ScaleRange>
      ranges;  // at least one for kNvfp4 and kFp8Tensor, covering all rows in order
  std::optional<float> input_scale;  // activation multiplier (NVFP4: amax/2688; FP8: amax/448)
  TensorRef pre_quant_scale;         // AWQ: activations are multiplied by it before anything else
  std::string
      config_group;  // which rule of the quantization config named it, for reports; may be empty
};

}  // namespace sextant
