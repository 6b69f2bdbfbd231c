// MXFP4 profiles and their lossless NVFP4 form, FP8 in its three block shapes, error statistics.
// Expected bytes: tests/golden/quant/mxfp4_blocks.txt and fp8.txt (numpy, ml_dtypes).
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "quant/e2m1.h"
#include "quant/error_stats.h"
#include "quant/fp8.h"
#include "quant/golden_test.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

constexpr Mxfp4Profile kMx[] = {Mxfp4Profile::kRoundUp, Mxfp4Profile::kModelOpt,
                                Mxfp4Profile::kCompressedTensors, Mxfp4Profile::kTruncate};

TEST(Mxfp4, BlocksEqualTheReferenceByteForByte) {
  const auto lines = golden_lines("mxfp4_blocks.txt");
  ASSERT_EQ(lines.size(), 240U);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<float> x = hex_floats(lines[i][0]);
    ASSERT_EQ(x.size(), 32U);
    for (const Mxfp4Profile profile : kMx) {
      uint8_t block[17];
      mxfp4_quantize_block(profile, x.data(), block + 1, block);
      const std::string& expected = lines[i][1 + static_cast<size_t>(profile)];
      // The NaN block: ModelOpt's comparisons with NaN are false, so only the scale tells.
      EXPECT_EQ(to_hex(block, 17), expected)
          << "line " << i + 1 << " " << mxfp4_profile_name(profile);
    }
  }
}

TEST(Mxfp4, ModelOptRoundsTiesDownAndZerosAreNegative) {
  std::vector<float> x(32, 0.0F);
  const float ties[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, 6.0F, -0.75F, -5.0F};
  std::copy(std::begin(ties), std::end(ties), x.begin());
  uint8_t codes[16], scale = 0;
  mxfp4_quantize_block(Mxfp4Profile::kModelOpt, x.data(), codes, &scale);
  EXPECT_EQ(scale, 127);
  EXPECT_EQ(to_hex(codes, 16), "10325476e98888888888888888888888");
  mxfp4_quantize_block(Mxfp4Profile::kRoundUp, x.data(), codes, &scale);
  EXPECT_EQ(to_hex(codes, 16), "20426476ea0000000000000000000000");
}

TEST(Mxfp4, NamesAndMatrices) {
  for (const Mxfp4Profile profile : kMx)
    EXPECT_EQ(mxfp4_profile_from_name(mxfp4_profile_name(profile)), profile);
  EXPECT_FALSE(mxfp4_profile_from_name("nearest").has_value());
  std::vector<float> x(2 * 64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(static_cast<float>(i % 7), 1 + static_cast<int>(i / 32));
  std::vector<uint8_t> codes(2 * 32), scales(2 * 2);
  mxfp4_quantize(Mxfp4Profile::kRoundUp, {x.data(), 2, 64}, {codes.data(), 2, 32},
                 {scales.data(), 2, 2});
  EXPECT_EQ(scales, (std::vector<uint8_t>{128, 129, 130, 131}));
  std::vector<float> out(2 * 64);
  mxfp4_dequantize({codes.data(), 2, 32}, {scales.data(), 2, 2}, {out.data(), 2, 64});
  for (size_t i = 0; i < x.size(); ++i)  // 5 is a tie and goes to 4
    EXPECT_EQ(out[i], i % 7 == 5 ? x[i] * 0.8F : x[i]) << i;
}

// Exponents spanning up to 17 convert, values identical.
RC_GTEST_PROP(Mxfp4, BecomesNvfp4WithoutLoss, ()) {
  constexpr int64_t kRows = 2, kBlocks = 3;
  const int base = *rc::gen::inRange(0, 237);
  std::vector<uint8_t> codes(kRows * kBlocks * 16), scales(kRows * kBlocks);
  for (uint8_t& b : codes) b = static_cast<uint8_t>(*rc::gen::inRange(0, 256));
  for (uint8_t& b : scales) b = static_cast<uint8_t>(base + *rc::gen::inRange(0, 18));
  std::vector<uint8_t> nv(kRows * kBlocks * 2);
  const auto g = mxfp4_to_nvfp4({codes.data(), kRows, kBlocks * 16},
                                {scales.data(), kRows, kBlocks}, {nv.data(), kRows, kBlocks * 2});
  RC_ASSERT(g.has_value());
  std::vector<float> a(kRows * kBlocks * 32), b(a.size());
  mxfp4_dequantize({codes.data(), kRows, kBlocks * 16}, {scales.data(), kRows, kBlocks},
                   {a.data(), kRows, kBlocks * 32});
  nvfp4_dequantize({codes.data(), kRows, kBlocks * 16}, {nv.data(), kRows, kBlocks * 2},
                   {*g, false}, {b.data(), kRows, kBlocks * 32});
  for (size_t i = 0; i < a.size(); ++i)
    RC_ASSERT(std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]));
}

TEST(Mxfp4, WhatHasNoNvfp4FormIsRefused) {
  std::vector<uint8_t> codes(32, 0x11), scales = {100, 118}, nv(4);
  const auto convert = [&] {
    return mxfp4_to_nvfp4({codes.data(), 1, 32}, {scales.data(), 1, 2}, {nv.data(), 1, 4});
  };
  const auto wide = convert();  // 18 octaves
  ASSERT_FALSE(wide.has_value());
  EXPECT_EQ(wide.error().code, Code::kUnsupported);
  EXPECT_NE(wide.error().text.find("2^-27 to 2^-9"), std::string::npos) << wide.error().text;
  std::fill(codes.begin(), codes.begin() + 16, uint8_t{0x80});  // zeros: their exponent is free
  ASSERT_TRUE(convert().has_value());
  EXPECT_EQ(nv, (std::vector<uint8_t>{0x01, 0x01, 0x78, 0x78}));
  scales[1] = 0xFF;
  const auto nan = convert();
  ASSERT_FALSE(nan.has_value());
  EXPECT_NE(nan.error().text.find("row 0, block 1"), std::string::npos) << nan.error().text;
  std::fill(codes.begin(), codes.end(), uint8_t{0});
  scales = {3, 200};
  EXPECT_EQ(convert().value(), 0x1p-8F);
}

// ------------------------------------------------------------------ FP8

// As fp8_input of tools/golden/quant_vectors.py.
std::vector<float> fp8_input(int64_t rows, int64_t cols) {
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto top = static_cast<uint32_t>(i * 2654435761U) >> 8;
    x[i] = static_cast<float>(top) * 0x1p-24F - 0.5F;
    if (i % 5 == 0) x[i] *= 8.0F;
    if (static_cast<int64_t>(i) % cols == 3) x[i] = 0.0F;
  }
  return x;
}

TEST(Fp8, TensorChannelAndRaggedBlocks) {
  const auto lines = golden_lines("fp8.txt");
  ASSERT_EQ(lines.size(), 16U);
  for (size_t at = 0; at < lines.size(); at += 4) {
    int64_t n[4];
    for (size_t i = 0; i < 4; ++i) n[i] = std::stol(lines[at][i + 1]);
    const auto [rows, cols, block_n, block_k] = n;
    const std::vector<float> expected_scales = hex_floats(lines[at + 1][0]);
    const std::vector<float> x = fp8_input(rows, cols);
    std::vector<float> scales(expected_scales.size()), out(x.size());
    std::vector<uint8_t> codes(x.size());
    const Mat<float> s(scales.data(), (rows + block_n - 1) / block_n,
                       (cols + block_k - 1) / block_k);
    fp8_scales({x.data(), rows, cols}, block_n, block_k, s);
    EXPECT_EQ(scales, expected_scales) << at;
    fp8_quantize({x.data(), rows, cols}, s, block_n, block_k, {codes.data(), rows, cols});
    EXPECT_EQ(to_hex(codes.data(), codes.size()), lines[at + 2][0]) << at;
    fp8_dequantize({codes.data(), rows, cols}, s, block_n, block_k, {out.data(), rows, cols});
    std::vector<float> ends(out.begin(), out.begin() + cols);
    ends.insert(ends.end(), out.end() - cols, out.end());
    EXPECT_EQ(ends, hex_floats(lines[at + 3][0])) << at;
  }
}

TEST(Fp8, ZerosAndOverflow) {
  EXPECT_EQ(fp8_scale(0.0F), 1.0F);
  EXPECT_EQ(fp8_scale(896.0F), 2.0F);
  const float x[] = {1000.0F, -std::numeric_limits<float>::infinity(), -0.0F, 1.0F};
  const float scale = 2.0F;
  uint8_t codes[4];
  fp8_quantize({x, 1, 4}, {&scale, 1, 1}, 1, 4, {codes, 1, 4});
  EXPECT_EQ(to_hex(codes, 4), "7efe8030");
  float nan_scale = 0;
  const float with_nan[] = {1.0F, std::numeric_limits<float>::quiet_NaN()};
  fp8_scales({with_nan, 1, 2}, 1, 2, {&nan_scale, 1, 1});
  EXPECT_TRUE(std::isnan(nan_scale));
}

// ------------------------------------------------------------------ error statistics

TEST(ErrorStats, ByHand) {
  const std::vector<float> reference = {3, 0, -4, 0};
  const std::vector<float> value = {3, 1, -4, 2};
  const ErrorStats s = error_stats(reference, value);
  EXPECT_EQ(s.n, 4);
  EXPECT_EQ(s.max_abs, 2.0);
  EXPECT_EQ(s.max_idx, 3);
  EXPECT_EQ(s.max_reference, 4.0);
  EXPECT_DOUBLE_EQ(s.relative_l2(), std::sqrt(5.0) / 5.0);
  EXPECT_DOUBLE_EQ(s.cosine(), 25.0 / (5.0 * std::sqrt(30.0)));
  EXPECT_DOUBLE_EQ(s.rms_ratio(), std::sqrt(30.0 / 25.0));
  EXPECT_DOUBLE_EQ(s.rms_reference(), 2.5);
  EXPECT_DOUBLE_EQ(s.rms_error(), std::sqrt(5.0 / 4.0));
}

TEST(ErrorStats, ZerosAndNonFinite) {
  const std::vector<float> zeros(3, 0.0F), ones(3, 1.0F);
  EXPECT_EQ(error_stats(zeros, zeros).relative_l2(), 0.0);
  EXPECT_EQ(error_stats(zeros, zeros).cosine(), 1.0);
  EXPECT_EQ(error_stats(zeros, zeros).rms_ratio(), 1.0);
  EXPECT_EQ(error_stats(zeros, ones).cosine(), 0.0);
  EXPECT_EQ(error_stats(ones, zeros).relative_l2(), 1.0);
  EXPECT_EQ(error_stats(ones, zeros).rms_ratio(), 0.0);
  EXPECT_TRUE(std::isinf(error_stats(zeros, ones).relative_l2()));
  const std::vector<float> broken = {1, std::numeric_limits<float>::quiet_NaN(), 9};
  const ErrorStats s = error_stats(ones, broken);
  EXPECT_FALSE(s.finite());
  EXPECT_EQ(s.n_nonfinite, 1);
  EXPECT_EQ(s.max_idx, 1);
  EXPECT_EQ(s.max_abs, 8.0);
  EXPECT_EQ(error_stats({}, {}).n, 0);
  EXPECT_EQ(error_stats({}, {}).rms_error(), 0.0);
}

RC_GTEST_PROP(ErrorStats, PartsMergeToTheWhole, ()) {
  const auto n = static_cast<size_t>(*rc::gen::inRange(1, 40));
  std::vector<float> a(n), b(n);
  for (size_t i = 0; i < n; ++i) {  // small integers: sums are exact in any order
    a[i] = static_cast<float>(*rc::gen::inRange(-50, 50));
    b[i] = *rc::gen::inRange(0, 12) == 0 ? std::numeric_limits<float>::infinity()
                                         : static_cast<float>(*rc::gen::inRange(-50, 50));
  }
  const auto cut = static_cast<size_t>(*rc::gen::inRange(0, static_cast<int>(n) + 1));
  const std::span<const float> sa(a), sb(b);
  const ErrorStats whole = error_stats(sa, sb);
  ErrorStats parts = error_stats(sa.first(cut), sb.first(cut));
  parts.merge(error_stats(sa.subspan(cut), sb.subspan(cut)));
  RC_ASSERT(parts.n == whole.n && parts.n_nonfinite == whole.n_nonfinite);
  RC_ASSERT(parts.max_abs == whole.max_abs && parts.max_idx == whole.max_idx);
  RC_ASSERT(parts.sum_error2 == whole.sum_error2 && parts.sum_product == whole.sum_product);
}

}  // namespace
}  // namespace sextant
