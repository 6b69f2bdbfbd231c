// Shared by the kernel tests: deterministic random data, weights of every form in poisoned buffers,
// and the bound of a float32 sum. Expected values come from ref, whose own tests are in
// ref_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace sextant {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();    // SplitMix64 (Steele et al. 2014)
  double uniform();   // [0, 1)
  float normalish();  // sum of uniforms, variance 1
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

inline constexpr uint8_t kPoison = 0x7F;  // E4M3 NaN, a large BF16, FP16 NaN, a large float

// Bytes with poison on both sides: reading over an end gives wrong numbers, or a sanitizer report.
class GuardedBytes {
 public:
  GuardedBytes() = default;
  explicit GuardedBytes(int64_t n);
  std::byte* data() { return bytes_.data() + kGuard; }
  const std::byte* data() const { return bytes_.data() + kGuard; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) - 2 * kGuard; }
  bool guards_intact() const;

 private:
  static constexpr int64_t kGuard = 256;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * kGuard, std::byte{kPoison});
};

// A matrix whose rows are apart, the gaps poisoned with NaN.
struct GapMat {
  std::vector<float> data;
  Mat<float> view;
  GapMat(int64_t rows, int64_t cols, int64_t gap = 5);
  bool gaps_intact() const;
};
GapMat random_mat(int64_t rows, int64_t cols, uint64_t seed);

struct TestLinear {
  WeightForm form = WeightForm::kBf16;
  int64_t n = 0;
  int64_t k = 0;
  GuardedBytes weight;
  GuardedBytes scales;
  bool has_scales = false;
  DType scale_dtype = DType::kF32;
  int64_t block_n = 1;
  int64_t block_k = 16;
  std::vector<float> multiplier;

  WeightSource source() const;
};
// Codes over their whole range but NaN; scales around 1, some negative or zero where the format has
// them.
TestLinear random_linear(WeightForm form, int64_t n, int64_t k, uint64_t seed);
// FP8 with scales of scale_dtype a block_n x block_k block.
TestLinear random_fp8_blocks(int64_t n, int64_t k, int64_t block_n, int64_t block_k,
                             DType scale_dtype, uint64_t seed);
inline constexpr WeightForm kAllForms[] = {WeightForm::kF32,   WeightForm::kBf16,
                                           WeightForm::kF16,   WeightForm::kFp8,
                                           WeightForm::kNvfp4, WeightForm::kMxfp4};
std::string form_name(WeightForm form);

// One linear of one table; gaps of y checked.
GapMat run_linear(const Ops& ops, const PackedLinear& w, Mat<const float> x, ActForm act,
                  ThreadPool& pool);
bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace sextant
