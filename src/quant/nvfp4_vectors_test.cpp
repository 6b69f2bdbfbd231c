// The test vectors V1 to V46 of nvfp4.md section 8, byte for byte, and its swizzle, GGUF and
// dequantization examples.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quant/bf16.h"
#include "quant/golden_test.h"
#include "quant/nvfp4.h"
#include "quant/nvfp4_layout.h"

namespace sextant {
namespace {

using Profile = Nvfp4Profile;
using Block = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The inputs by their names in the section.
Block P(const std::vector<std::pair<size_t, float>>& but = {}) {
  Block x = {0, 0.25F, 0.5F, 0.75F, 1, 1.25F, 1.5F, 1.75F, 2, 2.5F, 3, 3.5F, 4, 5, 5.5F, 6};
  for (const auto& [i, value] : but) x[i] = value;
  return x;
}
Block N() {
  Block x = P();
  for (float& value : x) value = -value;
  return x;
}
Block Z() { return Block(16, 0.0F); }
Block bf(Block x) {
  for (float& value : x) value = round_to_bf16(value);
  x.resize(16, 0.0F);
  return x;
}
Block B() {
  return bf({8, -8, 4, 2, 1, 0.5F, 0.7F, 0.69921875F, 0.67578125F, -0.67578125F, 0.3F, -0.3F, 0.1F,
             -0.1F, 0, -0.0F});
}
Block U() { return bf({1e-4F, -5e-5F}); }
Block steps() {
  return {0.2500001F, 0.2499999F, 0.7500001F, 0.7499999F, 1.2500001F, 1.2499999F,
          1.7500001F, 1.7499999F, 2.5000002F, 2.4999998F, 3.5000002F, 3.4999998F,
          5.0000005F, 4.9999995F, 6,          -6};
}
Block ramp() {
  Block x;
  for (int i = -8; i < 8; ++i) x.push_back(static_cast<float>(i) / 8.0F);
  return x;
}
Block overflow(float first) {
  Block x(16, 1.0F);
  x[0] = first, x[1] = -2688, x[2] = 2784, x[3] = 1000;
  return bf(x);
}
Block near_five() { return bf({6, 5, 5, 5, 4.9F, 5.1F, 5, -5, 5, 3, 2, 1, 0.5F, 5, 5, -5}); }

TEST(Nvfp4Vectors, EveryOneByteForByte) {
  struct Vector {
    const char* name;
    Profile profile;
    Block x;
    float global;
    std::string scale, codes;
  };
  const std::vector<Vector> vectors = {
      {"V1", Profile::kA, P(), 1.0F, "38", "0021224344656677"},
      {"V2", Profile::kA, N(), 1.0F, "38", "88a9aacbccedeeff"},
      {"V3", Profile::kA, steps(), 1.0F, "38", "01122334455667f7"},
      {"V4", Profile::kA, Z(), 1.0F, "00", "0000000000000000"},
      {"V5", Profile::kB, Z(), 1.0F, "00", "0000000000000000"},
      {"V6", Profile::kC, Z(), 1.0F, "20", "0000000000000000"},
      {"V7", Profile::kD, Z(), 1.0F, "38", "0000000000000000"},
      {"V8", Profile::kE, Z(), 1.0F, "08", "0000000000000000"},
      {"V9", Profile::kA, ramp(), 2688.0F, "7e", "ffeecdab20436576"},
      {"V10", Profile::kA, B(), 2688.0F / 0.67578125F, "7e", "f7776777f7d5a280"},
      {"V11", Profile::kD, B(), 0.67578125F / 2688.0F, "7f", "7777777777777777"},
      {"V12", Profile::kA, B(), 0.00025141F, "00", "8000000080808080"},
      {"V13", Profile::kB, B(), 0.00025141F, "00", "f7777777f7f7f777"},
      {"V14", Profile::kC, B(), 0.00025141F, "20", "8000000080808000"},
      {"V15", Profile::kE, B(), 1.0F / 0.00025141F, "08", "8000000080808080"},
      {"V16", Profile::kA, P({{3, kNan}}), 1.0F, "38", "0071224344656677"},
      {"V17", Profile::kA, Block(16, kNan), 1.0F, "7f", "7777777777777777"},
      {"V18", Profile::kA, P({{0, kInf}, {1, -kInf}}), 1.0F, "7e", "f700000000000000"},
      {"V19", Profile::kA, P(), 0.0F, "00", "0000000000000000"},
      {"V20", Profile::kB, P(), 0.0F, "00", "7777777777777777"},
      {"V21", Profile::kA, P(), kNan, "7f", "7777777777777777"},
      {"V22", Profile::kA, P(), kInf, "7e", "7777777777777777"},
      {"V23", Profile::kA, Z(), kInf, "7f", "7777777777777777"},
      {"V24", Profile::kA, bf({0x1.8p-8F}), 1.0F, "00", "0000000000000000"},
      {"V25", Profile::kA, bf({0x1.8p-8F * 1.0078125F, 0x1.8p-9F, -0x1p-10F}), 1.0F, "01",
       "3509000000000000"},
      {"V26", Profile::kB, bf({0x1.8p-8F}), 1.0F, "00", "7777777777777777"},
      {"V27", Profile::kB, U(), 1.0F, "00", "f777777777777777"},
      {"V28", Profile::kT, U(), 1.0F, "00", "f700000000000000"},
      {"V29", Profile::kC, U(), 1.0F, "20", "8000000000000000"},
      {"V30", Profile::kE, U(), 1.0F, "08", "8000000000000000"},
      {"V31", Profile::kA, overflow(2784), 1.0F, "7e", "f747000000000000"},
      {"V32", Profile::kA, overflow(2800), 1.0F, "7e", "f747000000000000"},
      {"V33", Profile::kD, overflow(2800), 1.0F, "7f", "7777777777777777"},
      {"V34", Profile::kA, bf({6.375F, 3, 2.65625F, -2.65625F, 1.328125F, 0.265625F, -0.265625F}),
       1.0F, "38", "57d5130900000000"},
      {"V35", Profile::kA, bf({7.125F, 3.125F, 6.25F, 5, 4.4F, 1.6F, 0.9F}), 1.0F, "3a",
       "4766360100000000"},
      {"V36", Profile::kA, near_five(), 1.0F, "38", "676676e6562461e6"},
      {"V37", Profile::kFourOverSix, near_five(), 1.0F, "3c", "565555d5451351d5"},
      {"V38", Profile::kA, bf({-0.0F, -1e-3F, -0.2F, 6}), 1.0F, "38", "8878000000000000"},
      {"V39", Profile::kD, bf({-0.0F, -1e-3F, -0.2F, 6}), 1.0F, "38", "8078000000000000"},
      {"V40", Profile::kC, bf({-0.0F, -1e-3F, -0.2F, 6}), 1.0F, "38", "8078000000000000"},
      {"V41", Profile::kD, U(), 1.0F, "00", "f777777777777777"},
      {"V42", Profile::kD, P({{0, kInf}}), 1.0F, "7f", "7777777777777777"},
      {"V43", Profile::kC, P({{0, kInf}}), 1.0F, "7e", "0700000000000000"},
      {"V44", Profile::kC, P({{3, kNan}}), 1.0F, "7f", "undefined"},
      {"V45", Profile::kA, U(), 0x1p127F, "7e", "f777777777777777"},
      {"V46", Profile::kA, P(), -1.0F, "b8", "0021224344656677"},
  };
  ASSERT_EQ(vectors.size(), 46U);
  for (const Vector& v : vectors) {
    ASSERT_EQ(v.x.size(), 16U);
    uint8_t scale = 0;
    uint8_t codes[8];
    nvfp4_quantize_block(v.profile, v.x.data(), v.global, codes, &scale);
    EXPECT_EQ(to_hex(&scale, 1), v.scale) << v.name;
    if (v.codes != "undefined") {
      EXPECT_EQ(to_hex(codes, 8), v.codes) << v.name;
    }
  }
}

TEST(Nvfp4Vectors, Swizzle128x4) {
  const int64_t expected[][3] = {{0, 0, 0},       {0, 3, 3},     {0, 4, 512},  {1, 0, 16},
                                 {31, 3, 499},    {32, 0, 4},    {33, 5, 533}, {64, 1, 9},
                                 {127, 15, 2047}, {128, 0, 2048}};
  for (const auto& [row, col, offset] : expected)
    EXPECT_EQ(swizzle_128x4(row, col, 16), offset) << row << " " << col;
}

// Every offset of the padded buffer is hit once, for columns that pad to the next multiple of 4.
TEST(Nvfp4Vectors, SwizzlesAreBijections) {
  for (const int64_t n_cols : {1, 4, 6, 16}) {
    const int64_t padded = (n_cols + 3) / 4 * 4;
    std::vector<int> hits(static_cast<size_t>(swizzle_128x4_bytes(200, n_cols)));
    ASSERT_EQ(hits.size(), static_cast<size_t>(256 * padded));
    for (int64_t row = 0; row < 256; ++row)
      for (int64_t col = 0; col < padded; ++col)
        ++hits.at(static_cast<size_t>(swizzle_128x4(row, col, n_cols)));
    for (const int n : hits) EXPECT_EQ(n, 1);
    std::vector<int> small(static_cast<size_t>(24 * padded));
    for (int64_t row = 0; row < 24; ++row)
      for (int64_t col = 0; col < padded; ++col)
        ++small.at(static_cast<size_t>(swizzle_8x4(row, col, n_cols)));
    for (const int n : small) EXPECT_EQ(n, 1);
  }
}

TEST(Nvfp4Vectors, GgufBlock) {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 4; ++i)
    for (int b = 0; b < 8; ++b) codes.push_back(static_cast<uint8_t>(2 * b | (2 * b + 1) << 4));
  ASSERT_EQ(to_hex(codes.data(), 8), "1032547698badcfe");
  std::vector<uint8_t> scales = {0x38, 0x39, 0x3A, 0x3B};
  std::vector<uint8_t> gguf(36);
  nvfp4_to_gguf({codes.data(), 1, 32}, {scales.data(), 1, 4}, {gguf.data(), 1, 36});
  const std::string sub = "8091a2b3c4d5e6f7";
  EXPECT_EQ(to_hex(gguf.data(), 36), "38393a3b" + sub + sub + sub + sub);
  std::vector<uint8_t> codes_back(32), scales_back(4);
  nvfp4_from_gguf({gguf.data(), 1, 36}, {codes_back.data(), 1, 32}, {scales_back.data(), 1, 4});
  EXPECT_EQ(codes_back, codes);
  EXPECT_EQ(scales_back, scales);
}

// Several rows and blocks, arbitrary bytes: there and back is the identity but for a scale's sign.
TEST(Nvfp4Vectors, GgufRoundTripOfMatrices) {
  std::vector<uint8_t> codes(3 * 64), scales(3 * 8), gguf(3 * 72), codes_back(3 * 64),
      scales_back(3 * 8);
  uint32_t state = 1;
  for (uint8_t& b : codes) b = static_cast<uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
  for (uint8_t& b : scales) b = static_cast<uint8_t>((state = state * 1664525U + 1U) >> 25);
  scales[5] |= 0x80;
  nvfp4_to_gguf({codes.data(), 3, 64}, {scales.data(), 3, 8}, {gguf.data(), 3, 72});
  nvfp4_from_gguf({gguf.data(), 3, 72}, {codes_back.data(), 3, 64}, {scales_back.data(), 3, 8});
  scales[5] &= 0x7F;
  EXPECT_EQ(codes_back, codes);
  EXPECT_EQ(scales_back, scales);
}

// Byte 0x2e, S = 448, g = 1e-4: the low element first, f32(S * g) rounded before the code.
TEST(Nvfp4Vectors, DequantizedExample) {
  const uint8_t code = 0x2E;
  const uint8_t scale = 0x7E;
  float out[2];
  nvfp4_dequantize({&code, 1, 1}, {&scale, 1, 1}, {1e-4F, false}, {out, 1, 2});
  EXPECT_EQ(static_cast<double>(out[0]), -0.17919999361038208);
  EXPECT_EQ(static_cast<double>(out[1]), 0.04479999840259552);
}

}  // namespace
}  // namespace sextant
