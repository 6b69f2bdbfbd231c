// Every code of every format, and every BF16 input to the converters, against ml_dtypes and numpy
// (tests/golden/quant/formats.txt); the lists of nvfp4.md section 8 by value.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "quant/bf16.h"
#include "quant/convert.h"
#include "quant/dtype.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/golden_test.h"
#include "quant/ue8m0.h"

namespace sextant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::string> line(const std::string& first, const std::string& second = "") {
  for (const auto& words : golden_lines("formats.txt"))
    if (words[0] == first && (second.empty() || words[1] == second))
      return {words.begin() + (second.empty() ? 1 : 2), words.end()};
  ADD_FAILURE() << "tests/golden/quant/formats.txt has no " << first << " " << second;
  return {};
}

template <class Decode>
void expect_decodes(const std::string& name, size_t n, uint32_t step, Decode decode) {
  const auto words = line("decode", name);
  ASSERT_EQ(words.size(), n);
  for (uint32_t i = 0; i < n; ++i) {
    const float value = decode(i * step);
    if (words[i] == "nan")
      EXPECT_TRUE(std::isnan(value)) << name << " " << i * step;
    else
      EXPECT_EQ(std::bit_cast<uint32_t>(value), hex(words[i])) << name << " " << i * step;
  }
}

TEST(Formats, EveryCodeDecodes) {
  expect_decodes("e4m3", 256, 1, [](uint32_t c) { return e4m3_decode(static_cast<uint8_t>(c)); });
  expect_decodes("e5m2", 256, 1, [](uint32_t c) { return e5m2_decode(static_cast<uint8_t>(c)); });
  expect_decodes("ue8m0", 256, 1, [](uint32_t c) { return ue8m0_decode(static_cast<uint8_t>(c)); });
  expect_decodes("e2m1", 16, 1, [](uint32_t c) { return e2m1_decode(static_cast<uint8_t>(c)); });
  expect_decodes("fp16", 1772, 37,
                 [](uint32_t c) { return fp16_to_f32(static_cast<uint16_t>(c)); });
}

template <class Encode>
void expect_encodes(const std::string& name, Encode encode) {
  const auto words = line("encode", name);
  ASSERT_GT(words.size(), 10U);
  size_t next = 0;
  uint32_t expected = 0;
  for (uint32_t u = 0; u < 0x10000; ++u) {
    const float x = bf16_to_f32(static_cast<uint16_t>(u));
    if (std::isnan(x)) continue;
    if (next < words.size() && hex(words[next].substr(0, 4)) == u)
      expected = hex(words[next++].substr(5));
    ASSERT_EQ(encode(x), expected) << name << " of BF16 " << std::hex << u;
  }
  EXPECT_EQ(next, words.size());
}

TEST(Formats, EveryBf16ValueEncodes) {
  expect_encodes("e4m3", e4m3_encode);
  expect_encodes("e4m3_nonsaturating", e4m3_encode_nonsaturating);
  expect_encodes("e2m1", e2m1_encode);
}

TEST(Formats, Fp16AgreesWithNumpyAroundEveryTie) {
  const auto words = line("fp16");
  ASSERT_GT(words.size(), 3000U);
  for (const std::string& word : words)
    EXPECT_EQ(f32_to_fp16(hex_f32(word.substr(0, 8))), hex(word.substr(9))) << word;
  EXPECT_TRUE(std::isnan(fp16_to_f32(f32_to_fp16(kNan))));
  EXPECT_TRUE(std::isnan(fp16_to_f32(f32_to_fp16(std::bit_cast<float>(0x7F800001U)))));
}

TEST(Formats, EveryFp16AndBf16CodeSurvivesTheRoundTrip) {
  for (uint32_t u = 0; u < 0x10000; ++u) {
    const auto code = static_cast<uint16_t>(u);
    if (!std::isnan(fp16_to_f32(code))) {
      EXPECT_EQ(f32_to_fp16(fp16_to_f32(code)), code);
    }
    if (std::isnan(bf16_to_f32(code)))
      EXPECT_TRUE(std::isnan(round_to_bf16(bf16_to_f32(code))));
    else
      EXPECT_EQ(f32_to_bf16(bf16_to_f32(code)), code);
  }
}

TEST(Formats, Bf16RoundsTiesToEvenAndKeepsNan) {
  EXPECT_EQ(round_to_bf16(1.00390625F), 1.0F);
  EXPECT_EQ(round_to_bf16(1.01171875F), 1.015625F);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F817FFFU)), 0x3F81);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F7FFFFFU)), 0x7F80);  // rounds to infinity
  // A NaN whose rounding add would carry into infinity or zero.
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7F800001U))));
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7FFFFFFFU))));
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0xFFFFFFFFU))));
}

TEST(Formats, E4m3ListOfTheSpecification) {
  struct Row {
    float x;
    uint8_t saturating, nonsaturating;
  };
  const Row rows[] = {
      {0.0F, 0x00, 0x00},       {-0.0F, 0x80, 0x80},     {0x1p-10F, 0x00, 0x00},
      {0x1.000002p-10F, 1, 1},  {0x1p-9F, 0x01, 0x01},   {0x1.8p-9F, 0x02, 0x02},
      {0x1.4p-8F, 0x02, 0x02},  {0x1.ep-7F, 0x08, 0x08}, {0x1p-6F, 0x08, 0x08},
      {0.125F, 0x20, 0x20},     {1.0F, 0x38, 0x38},      {1.0625F, 0x38, 0x38},
      {1.1875F, 0x3A, 0x3A},    {17.0F, 0x58, 0x58},     {19.0F, 0x5A, 0x5A},
      {240.0F, 0x77, 0x77},     {248.0F, 0x78, 0x78},    {256.0F, 0x78, 0x78},
      {432.0F, 0x7E, 0x7E},     {448.0F, 0x7E, 0x7E},    {464.0F, 0x7E, 0x7E},
      {464.00003F, 0x7E, 0x7F}, {480.0F, 0x7E, 0x7F},    {kInf, 0x7E, 0x7F},
      {-kInf, 0xFE, 0xFF},      {kNan, 0x7F, 0x7F},      {-kNan, 0x7F, 0x7F},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(e4m3_encode(row.x), row.saturating) << row.x;
    EXPECT_EQ(e4m3_encode_nonsaturating(row.x), row.nonsaturating) << row.x;
  }
}

TEST(Formats, E4m3MidpointsGoToTheEvenCode) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = e4m3_decode(static_cast<uint8_t>(code));
    const float mid = (low + e4m3_decode(static_cast<uint8_t>(code + 1))) / 2;
    EXPECT_EQ(e4m3_encode(mid), code + (code & 1)) << code;
    EXPECT_EQ(e4m3_encode(std::nextafter(mid, kInf)), code + 1) << code;
    EXPECT_EQ(e4m3_encode(std::nextafter(mid, 0.0F)), code) << code;
    EXPECT_EQ(e4m3_encode(-mid), 0x80 | (code + (code & 1))) << code;
  }
}

TEST(Formats, Ue8m0ListOfTheSpecification) {
  struct Row {
    float x;
    uint8_t code;
  };
  const Row rows[] = {{0.0F, 0x00},       {0x1p-127F, 0x00}, {0x1p-126F, 0x01}, {1.0F, 0x7F},
                      {1.0000001F, 0x80}, {1.5F, 0x80},      {2.0F, 0x80},      {6.0F, 0x82},
                      {0x1p127F, 0xFE},   {3e38F, 0xFE},     {kInf, 0xFE},      {kNan, 0xFF},
                      {-1.0F, 0x00},      {0x1.8p-127F, 1},  {1e-45F, 0x00}};
  for (const Row& row : rows) EXPECT_EQ(ue8m0_encode_up(row.x), row.code) << row.x;
  const Row down[] = {{0.0F, 0x00},      {0x1p-126F, 0x01}, {0x1.8p-127F, 0x00}, {1.0F, 0x7F},
                      {1.9999999F, 127}, {2.0F, 0x80},      {kInf, 0xFE},        {kNan, 0xFF}};
  for (const Row& row : down) EXPECT_EQ(ue8m0_encode_down(row.x), row.code) << row.x;
  for (int code = 0; code < 0xFF; ++code) {
    EXPECT_EQ(ue8m0_encode_up(ue8m0_decode(static_cast<uint8_t>(code))), code);
    EXPECT_EQ(ue8m0_encode_down(ue8m0_decode(static_cast<uint8_t>(code))), code);
  }
}

TEST(Formats, E2m1EdgesAndSigns) {
  EXPECT_EQ(e2m1_encode(kNan), 7);
  EXPECT_EQ(e2m1_encode(-kNan), 7);
  EXPECT_EQ(e2m1_encode(kInf), 7);
  EXPECT_EQ(e2m1_encode(-kInf), 15);
  EXPECT_EQ(e2m1_encode(-0.0F), 8);
  EXPECT_EQ(e2m1_encode(-1e-45F), 8);
  const float thresholds[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  for (int i = 0; i < 7; ++i) {  // ties to even, one step beside each both ways
    EXPECT_EQ(e2m1_encode(thresholds[i]), i + (i & 1));
    EXPECT_EQ(e2m1_encode(std::nextafter(thresholds[i], 0.0F)), i);
    EXPECT_EQ(e2m1_encode(std::nextafter(thresholds[i], kInf)), i + 1);
    EXPECT_EQ(e2m1_encode(-thresholds[i]), 8 | (i + (i & 1)));
  }
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(e2m1_encode(e2m1_decode(code)), code);
  const uint8_t packed[] = {pack_nibbles(3, 12)};
  EXPECT_EQ(packed[0], 0xC3);
  EXPECT_EQ(nibble(packed, 0), 3);
  EXPECT_EQ(nibble(packed, 1), 12);
}

RC_GTEST_PROP(Formats, EncodersAreMonotone, ()) {
  const auto a = std::bit_cast<float>(*rc::gen::arbitrary<uint32_t>());
  const auto b = std::bit_cast<float>(*rc::gen::arbitrary<uint32_t>());
  RC_PRE(!std::isnan(a) && !std::isnan(b) && a <= b);
  RC_ASSERT(e4m3_decode(e4m3_encode(a)) <= e4m3_decode(e4m3_encode(b)));
  RC_ASSERT(e2m1_decode(e2m1_encode(a)) <= e2m1_decode(e2m1_encode(b)));
  RC_ASSERT(fp16_to_f32(f32_to_fp16(a)) <= fp16_to_f32(f32_to_fp16(b)));
  RC_ASSERT(round_to_bf16(a) <= round_to_bf16(b));
  RC_ASSERT(ue8m0_encode_up(a) <= ue8m0_encode_up(b));
  RC_ASSERT(ue8m0_encode_down(a) <= ue8m0_encode_up(a));
}

RC_GTEST_PROP(Formats, EncodersKeepTheSignAndTheNearest, (uint32_t bits)) {
  const auto x = std::bit_cast<float>(bits);
  RC_PRE(!std::isnan(x));
  RC_ASSERT((e4m3_encode(x) ^ e4m3_encode(-x)) == 0x80);
  RC_ASSERT((e2m1_encode(x) ^ e2m1_encode(-x)) == 8);
  RC_ASSERT((f32_to_fp16(x) ^ f32_to_fp16(-x)) == 0x8000);
  if (std::abs(x) > 448.0F) return;
  const double error = std::abs(static_cast<double>(e4m3_decode(e4m3_encode(x))) - x);
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7F) != 0x7F)
      RC_ASSERT(error <=
                std::abs(static_cast<double>(e4m3_decode(static_cast<uint8_t>(code))) - x));
}

TEST(DTypes, NamesAndSizes) {
  int n = 0;
  for (const char* name : {"BOOL", "U8", "I8", "F4", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U16", "I16",
                           "F16", "BF16", "U32", "I32", "F32", "U64", "I64", "F64"}) {
    const auto dtype = dtype_from_name(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype), name);
    EXPECT_NE(dtype_names().find(name), std::string_view::npos);
    EXPECT_EQ(static_cast<int>(*dtype), n++);
  }
  EXPECT_EQ(dtype_bits(DType::kF4), 4);
  EXPECT_EQ(dtype_bits(DType::kF8E8M0), 8);
  EXPECT_EQ(dtype_bits(DType::kBF16), 16);
  EXPECT_EQ(dtype_bits(DType::kU32), 32);
  EXPECT_EQ(dtype_bits(DType::kI64), 64);
  EXPECT_FALSE(dtype_from_name("F8_E4M3FN").has_value());
  EXPECT_FALSE(dtype_from_name("").has_value());
}

template <class T>
float converted(DType dtype, T value) {
  float out = kNan;
  EXPECT_TRUE(stored_to_f32(dtype, reinterpret_cast<const std::byte*>(&value), 1, &out));
  return out;
}

TEST(Convert, EveryStoredType) {
  EXPECT_EQ(converted(DType::kBool, uint8_t{2}), 1.0F);
  EXPECT_EQ(converted(DType::kU8, uint8_t{200}), 200.0F);
  EXPECT_EQ(converted(DType::kI8, int8_t{-3}), -3.0F);
  EXPECT_EQ(converted(DType::kF8E4M3, uint8_t{0x38}), 1.0F);
  EXPECT_EQ(converted(DType::kF8E5M2, uint8_t{0xC0}), -2.0F);
  EXPECT_EQ(converted(DType::kF8E8M0, uint8_t{0x80}), 2.0F);
  EXPECT_EQ(converted(DType::kU16, uint16_t{65535}), 65535.0F);
  EXPECT_EQ(converted(DType::kI16, int16_t{-5}), -5.0F);
  EXPECT_EQ(converted(DType::kF16, uint16_t{0x3C00}), 1.0F);
  EXPECT_EQ(converted(DType::kBF16, uint16_t{0x3F80}), 1.0F);
  EXPECT_EQ(converted(DType::kU32, uint32_t{7}), 7.0F);
  EXPECT_EQ(converted(DType::kI32, int32_t{-7}), -7.0F);
  EXPECT_EQ(converted(DType::kF32, 1.25F), 1.25F);
  EXPECT_EQ(converted(DType::kU64, uint64_t{1} << 40), 0x1p40F);
  EXPECT_EQ(converted(DType::kI64, int64_t{-9}), -9.0F);
  EXPECT_EQ(converted(DType::kF64, 0.1), 0.1F);
  float out = 0;
  const std::byte byte{};
  EXPECT_FALSE(stored_to_f32(DType::kF4, &byte, 1, &out));
}

TEST(Convert, ArraysAtAnyAddress) {
  const std::vector<float> x = {1.0F, -2.5F, 65504.0F, 0.1F, 0.0F};
  std::vector<uint16_t> bf(5), fp(5);
  f32_to_bf16(x.data(), 5, bf.data());
  f32_to_fp16(x.data(), 5, fp.data());
  std::vector<float> a(5), b(5), c(5);
  bf16_to_f32(bf.data(), 5, a.data());
  fp16_to_f32(fp.data(), 5, b.data());
  std::vector<std::byte> shifted(11);  // an odd address, as a safetensors offset can be
  std::memcpy(shifted.data() + 1, bf.data(), 10);
  ASSERT_TRUE(stored_to_f32(DType::kBF16, shifted.data() + 1, 5, c.data()));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a[i], round_to_bf16(x[i]));
    EXPECT_EQ(b[i], fp16_to_f32(f32_to_fp16(x[i])));
    EXPECT_EQ(c[i], a[i]);
  }
}

}  // namespace
}  // namespace sextant
