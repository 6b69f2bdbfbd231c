#include "kernels/test_data.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "base/checked.h"
#include "kernels/pack_source.h"
#include "quant/bf16.h"

namespace sextant {

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

float Random::normalish() {
  return static_cast<float>((uniform() + uniform() + uniform() - 1.5) * 2.0);
}

GuardedBytes::GuardedBytes(int64_t n)
    : bytes_(static_cast<size_t>(n + 2 * kGuard), std::byte{kPoison}) {}

bool GuardedBytes::guards_intact() const {
  for (int64_t i = 0; i < kGuard; ++i) {
    const auto front = bytes_[static_cast<size_t>(i)];
    const auto back = bytes_[bytes_.size() - 1 - static_cast<size_t>(i)];
    if (front != std::byte{kPoison} || back != std::byte{kPoison}) return false;
  }
  return true;
}

namespace {
constexpr uint32_t kGapBits = 0x7FC12345U;  // a NaN with a recognizable payload
}

GapMat::GapMat(int64_t rows, int64_t cols, int64_t gap)
    : data(static_cast<size_t>((rows + 1) * (cols + gap)), std::bit_cast<float>(kGapBits)),
      view(data.data() + gap, rows, cols, cols + gap) {}

bool GapMat::gaps_intact() const {
  const int64_t gap = view.stride - view.cols;
  for (int64_t i = 0; i <= view.rows; ++i) {
    for (int64_t j = 0; j < gap; ++j) {
      const float value = data[static_cast<size_t>(i * view.stride + j)];
      if (std::bit_cast<uint32_t>(value) != kGapBits) return false;
    }
  }
  return true;
}

GapMat random_mat(int64_t rows, int64_t cols, uint64_t seed) {
  GapMat mat(rows, cols);
  Random random(seed);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) mat.view.at(i, j) = random.normalish();
  return mat;
}

WeightSource TestLinear::source() const {
  WeightSource s;
  s.form = form;
  s.n = n;
  s.k = k;
  s.weight = weight.data();
  s.scales = has_scales ? scales.data() : nullptr;
  s.scale_dtype = scale_dtype;
  s.block_n = block_n;
  s.block_k = block_k;
  s.row_multiplier = multiplier;
  return s;
}

namespace {

uint16_t f32_to_fp16_normal(float x) {  // magnitudes in [2^-14, 2^15], cut
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const int32_t e = static_cast<int32_t>((u >> 23) & 255U) - 112;
  const uint32_t sign = (u >> 16) & 0x8000U;
  if (e <= 0) return static_cast<uint16_t>(sign | ((u >> 13) & 0x3FFU));  // some subnormals too
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(e) << 10 | ((u >> 13) & 0x3FFU));
}

void fill_weights(TestLinear& w, Random& random) {
  std::byte* p = w.weight.data();
  for (int64_t i = 0; i < w.n * w.k; ++i) {
    const float value = random.normalish();
    if (w.form == WeightForm::kF32) {
      std::memcpy(p + i * 4, &value, 4);
    } else if (w.form == WeightForm::kBf16 || w.form == WeightForm::kF16) {
      const uint16_t half =
          w.form == WeightForm::kBf16 ? f32_to_bf16(value) : f32_to_fp16_normal(value);
      std::memcpy(p + i * 2, &half, 2);
    } else if (w.form == WeightForm::kFp8) {
      uint8_t code = static_cast<uint8_t>(random.next());
      if ((code & 0x7FU) == 0x7FU) code ^= 1U;  // NaN codes have their own tests
      p[i] = std::byte{code};
    } else if (i % 2 == 0) {
      p[i / 2] = static_cast<std::byte>(random.next());
    }
  }
}

}  // namespace

TestLinear random_linear(WeightForm form, int64_t n, int64_t k, uint64_t seed) {
  TestLinear w;
  Random random(seed);
  w.form = form;
  w.n = n;
  w.k = k;
  w.weight = GuardedBytes(n * weight_row_bytes(form, k));
  fill_weights(w, random);
  if (const int64_t block = fp4_block(form)) {
    w.has_scales = true;
    w.scales = GuardedBytes(n * ceil_div(k, block));
    for (int64_t i = 0; i < w.scales.size(); ++i) {
      uint8_t scale = static_cast<uint8_t>(120 + random.below(14));  // UE8M0 around 2^0
      if (form == WeightForm::kNvfp4) scale = static_cast<uint8_t>(random.next());
      if (form == WeightForm::kNvfp4 && (scale & 0x7FU) == 0x7FU) scale ^= 1U;
      w.scales.data()[i] = std::byte{scale};
    }
  }
  for (int64_t r = 0; r < n; ++r)
    w.multiplier.push_back(static_cast<float>(0.001 + random.uniform()));
  return w;
}

TestLinear random_fp8_blocks(int64_t n, int64_t k, int64_t block_n, int64_t block_k,
                             DType scale_dtype, uint64_t seed) {
  TestLinear w = random_linear(WeightForm::kFp8, n, k, seed);
  Random random(seed + 1);
  w.multiplier.clear();
  w.has_scales = true;
  w.scale_dtype = scale_dtype;
  w.block_n = block_n;
  w.block_k = block_k;
  const int64_t count = ceil_div(n, block_n) * ceil_div(k, block_k);
  const int64_t size = scale_dtype == DType::kF32 ? 4 : scale_dtype == DType::kF8E8M0 ? 1 : 2;
  w.scales = GuardedBytes(count * size);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(0.01 + random.uniform());
    const uint16_t half =
        scale_dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_fp16_normal(value);
    const auto exponent = static_cast<uint8_t>(120 + random.below(10));
    const void* bytes = &value;
    if (size == 2) bytes = &half;
    if (size == 1) bytes = &exponent;
    std::memcpy(w.scales.data() + i * size, bytes, static_cast<size_t>(size));
  }
  return w;
}

std::string form_name(WeightForm form) {
  static const char* const kNames[] = {"f32", "bf16", "f16", "fp8", "nvfp4", "mxfp4"};
  return kNames[static_cast<size_t>(form)];
}

GapMat run_linear(const Ops& ops, const PackedLinear& w, Mat<const float> x, ActForm act,
                  ThreadPool& pool) {
  GapMat y(x.rows, w.n);
  const std::vector<const PackedLinear*> ws = {&w};
  const std::vector<Mat<float>> ys = {y.view};
  ops.linear(ws, x, act, ys, pool);
  EXPECT_TRUE(y.gaps_intact()) << ops.name << " wrote between rows";
  return y;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace sextant
