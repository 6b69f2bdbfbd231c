// One record a linear, whatever the dialect (house.md section 2): codes, block scales, a multiplier
// per output range, an optional activation multiplier, the stored dtype, and where each byte came
// from. One internal convention: multipliers g (nvfp4.md, Notation). Trivial views into mapped
// files; the Checkpoint that made them owns the mappings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "quant/dtype.h"

namespace sextant {

// A tensor of the checkpoint; empty (info == nullptr) where the record has none.
struct TensorRef {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;
  // Set where the stored form had to be brought into the record's form (float32 block scales that
  // are exact in E4M3, groups of 32): bytes owned by the Checkpoint, described by `info`, whose
  // offsets then do not refer to the file.
  const std::byte* converted = nullptr;
  // Set where this is one expert's slice of a stack [E, ...]: `info` then has the stack's name and
  // the slice's shape and place in the file.
  int64_t expert = -1;

  explicit operator bool() const { return info != nullptr; }
  std::span<const std::byte> bytes() const {
    if (converted != nullptr) return {converted, static_cast<size_t>(info->n_bytes())};
    return file->bytes(*info);
  }
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
constexpr bool is_quantized(Scheme scheme) { return scheme >= Scheme::kFp8Tensor; }
constexpr bool is_fp8(Scheme scheme) {
  return scheme >= Scheme::kFp8Tensor && scheme <= Scheme::kFp8Block;
}

constexpr bool has_codes(Scheme scheme) {  // E2M1, two a byte
  return scheme == Scheme::kNvfp4 || scheme == Scheme::kMxfp4;
}

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
  int64_t n = 0;        // output rows
  int64_t k = 0;        // input columns
  TensorRef weight;     // codes or plain weights, row-major; dtype U8, I8 or F4 for codes
  TensorRef scales;     // block or channel scales, where the scheme has them; info->dtype is what
                        // the bytes are: F8_E4M3 for kNvfp4, F8_E8M0 for kMxfp4
  int64_t block_n = 1;  // rows a scale covers (128 for kFp8Block)
  // The file keeps the matrix with its columns first (stacks of experts in BMM order,
  // nvfp4.md 2.3): weight is [k, n] or codes [k/2, n], where the two codes of a byte are neighbors
  // along k, and scales are [k/block_k, n]. Who reads values takes RowOrdered (row_order.h).
  bool column_major = false;
  int64_t block_k = 16;  // columns a scale covers: 16 kNvfp4, 32 kMxfp4, k kFp8Tensor, kFp8Channel
  std::vector<ScaleRange>
      ranges;  // at least one for kNvfp4 and kFp8Tensor, covering all rows in order
  std::optional<float> input_scale;    // activation multiplier (NVFP4: amax/2688; FP8: amax/448);
                                       // empty where there is none or it is unusable (a finding)
  std::optional<float> input_divisor;  // G of the same, as quantizers take it: what the file has
                                       // where it has a divisor, else f32(1 / input_scale)
  TensorRef pre_quant_scale;           // AWQ: activations are multiplied by it before anything else
  int64_t n_bytes = 0;                 // of all its tensors, as the file has them
  // What it was made from, as the file has it (weight, scales, global and input scales), null
  // behind the last; of an expert in a stack what it shares with others too.
  std::array<const TensorInfo*, 5> tensors = {};
  std::string
      config_group;  // which rule of the quantization config named it, for reports; may be empty
};

// The KV cache scales of one attention (FP8: amax/448, NVFP4: amax/2688): multipliers, used only
// with a quantized cache.
struct KvScales {
  TensorRef k;
  TensorRef v;
  std::optional<float> k_scale;
  std::optional<float> v_scale;
};

// Gives the resident pages of a tensor, or of its bytes [begin, end), back to the system, with the
// pages around them that it mapped on the way; they can be read again.
void release_pages(const TensorRef& tensor);
void release_pages(const TensorRef& tensor, int64_t begin, int64_t end);

// The range that a row is in; g = 1 where the record has no ranges.
const ScaleRange& range_of(const LinearRecord& record, int64_t row);

// g of every row, or empty where the record has no ranges: what WeightSource::row_multiplier takes.
std::vector<float> row_multipliers(const LinearRecord& record);

}  // namespace sextant
