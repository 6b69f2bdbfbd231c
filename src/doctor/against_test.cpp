// Cases C088 and C089's fault, and others that only a reference shows. Expected numbers by hand, or
// in float64 from the fixtures' own dequantizer, which shares nothing with the one that is tested.
#include "doctor/against.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"
#include "quant/e2m1.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

using testing::CheckpointFixture;
using testing::dequantized;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::opened;
using ::testing::SizeIs;

constexpr char kDown0[] = "model.layers.0.mlp.down_proj";
constexpr char kDown1[] = "model.layers.1.mlp.down_proj";
constexpr char kDown2[] = "model.layers.2.mlp.down_proj";
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string named(const char* module, const char* part) { return std::string(module) + part; }

// Normal numbers, the same on every machine (Box and Muller).
std::vector<float> gaussian(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    const double u = (static_cast<double>(random()) + 1) / 4294967297.0;
    const double v = static_cast<double>(random()) / 4294967296.0;
    values.push_back(static_cast<float>(std::sqrt(-2 * std::log(u)) *
                                        std::cos(2 * std::numbers::pi * v) * 0.02));
  }
  return values;
}

// The weight in ModelOpt's NVFP4, as ModelOpt quantizes.
void add_nvfp4(CheckpointFixture& f, const std::string& module, const std::vector<float>& values,
               int64_t n, int64_t k) {
  const float g = nvfp4_multiplier(amax_of(values.data(), n * k));
  std::vector<uint8_t> codes(static_cast<size_t>(n * k / 2));
  std::vector<uint8_t> scales(static_cast<size_t>(n * k / 16));
  nvfp4_quantize(Nvfp4Profile::kD, {values.data(), n, k}, g, {codes.data(), n, k / 2},
                 {scales.data(), n, k / 16});
  f.add(module + ".weight", "U8", {n, k / 2}, codes);
  f.add(module + ".weight_scale", "F8_E4M3", {n, k / 16}, scales);
  f.add_f32(module + ".weight_scale_2", {}, {g});
}

// Three layers of 32 x 64 and a norm: the source in BF16, and a healthy NVFP4 copy.
struct Copies {
  CheckpointFixture here;
  CheckpointFixture source;
  Copies() {
    uint32_t seed = 1;
    for (const char* module : {kDown0, kDown1, kDown2}) {
      const std::vector<float> values = gaussian(32 * 64, seed++);
      source.add_bf16(named(module, ".weight"), {32, 64}, values);
      add_nvfp4(here, module, values, 32, 64);
    }
    for (CheckpointFixture* f : {&here, &source}) f->add_bf16("model.norm.weight", {64}, 1.0F);
  }
};

AgainstReport against(CheckpointFixture& here, CheckpointFixture& reference, int n_threads = 2) {
  const auto checkpoint = opened(here.write());
  const auto other = opened(reference.write());
  ThreadPool pool(n_threads);
  return compare_weights(*checkpoint, *other, pool);
}

const WeightDifference& of(const AgainstReport& report, std::string_view module) {
  const auto it = std::find_if(report.tensors.begin(), report.tensors.end(),
                               [&](const auto& d) { return d.module == module; });
  if (it != report.tensors.end()) return *it;
  ADD_FAILURE() << "no " << module;
  static const WeightDifference none;
  return none;
}

std::vector<std::string> ids(const AgainstReport& report) {
  std::vector<std::string> out;
  for (const Finding& f : report.findings) out.push_back(f.id);
  return out;
}

struct Expected {
  double cosine = 0;
  double relative_l2 = 0;
  double rms_ratio = 0;
};
Expected by_hand(const std::vector<float>& a, const std::vector<float>& b) {
  double aa = 0, bb = 0, ab = 0, ee = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i];
    const double y = b[i];
    aa += x * x;
    bb += y * y;
    ab += x * y;
    ee += (x - y) * (x - y);
  }
  return {ab / std::sqrt(aa * bb), std::sqrt(ee / bb), std::sqrt(aa / bb)};
}

// Both are opened from the directories that against() wrote.
void expect_numbers(const WeightDifference& d, CheckpointFixture& here, CheckpointFixture& source) {
  const auto checkpoint = opened(here.dir());
  const auto reference = opened(source.dir());
  const Expected e = by_hand(dequantized(*checkpoint->linear(d.module)),
                             dequantized(*reference->linear(d.module)));
  EXPECT_THAT(d.cosine, DoubleNear(e.cosine, 1e-9)) << d.module;
  EXPECT_THAT(d.relative_l2, DoubleNear(e.relative_l2, 1e-9)) << d.module;
  EXPECT_THAT(d.rms_ratio, DoubleNear(e.rms_ratio, 1e-9)) << d.module;
}

TEST(Against, AHealthyCopyHasNoFindings) {
  Copies copies;
  const AgainstReport report = against(copies.here, copies.source);
  EXPECT_THAT(report.findings, IsEmpty());
  ASSERT_THAT(report.tensors, SizeIs(3));
  for (const WeightDifference& d : report.tensors) {
    expect_numbers(d, copies.here, copies.source);
    EXPECT_THAT(d.cosine, DoubleNear(0.995, 0.001));  // nvfp4.md 4.3: 20 dB
    EXPECT_EQ(d.ratio_name, "");
    EXPECT_LT(d.worst_block_error, 0.3);
  }
  EXPECT_EQ(report.n_plain, 1);
  EXPECT_EQ(report.n_plain_equal, 1);
}

// Block scales 1 and 15/32 in turn, exchanged in one copy: with equal codes the cosine is
// 2 t / (1 + t^2) for t = 15/32, which is 0.76861.
TEST(Against, C088BlockScalesOfOtherDataAreNamedAlone) {
  Copies copies;
  std::vector<uint8_t> codes;  // every block has the same
  for (int i = 0; i < 32 * 32; ++i) codes.push_back(static_cast<uint8_t>(0x5A ^ (i % 8)));
  std::vector<uint8_t> scales;
  std::vector<float> values;
  for (size_t i = 0; i < 32 * 64; ++i) {
    const bool odd = (i / 16) % 2 == 1;
    values.push_back(e2m1_decode(nibble(codes.data(), static_cast<int64_t>(i))) *
                     (odd ? 15.0F / 32 : 1.0F) / 64);
    if (i % 16 == 0) scales.push_back(odd ? 0x38 : 0x2F);  // the wrong way round
  }
  copies.source.add_bf16(named(kDown1, ".weight"), {32, 64}, values);
  copies.here.add(named(kDown1, ".weight"), "U8", {32, 32}, codes);
  copies.here.add(named(kDown1, ".weight_scale"), "F8_E4M3", {32, 4}, scales);
  copies.here.add_f32(named(kDown1, ".weight_scale_2"), {}, {1.0F / 64});

  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A1"));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.slug, "low-cosine");
  EXPECT_EQ(f.severity, Severity::kError);
  EXPECT_EQ(f.tensor, kDown1);
  EXPECT_EQ(f.layer, 1);
  EXPECT_EQ(f.count, 1);
  EXPECT_THAT(f.message, HasSubstr("0.768"));
  EXPECT_THAT(f.message, HasSubstr("below 0.9 is an error"));
  EXPECT_THAT(f.message, HasSubstr("0.995 (20 dB)"));
  EXPECT_EQ(report.tensors[0].module, kDown1);  // worst first
  const double t = 15.0 / 32;
  EXPECT_THAT(report.tensors[0].cosine, DoubleNear(2 * t / (1 + t * t), 1e-12));
  expect_numbers(report.tensors[0], copies.here, copies.source);
  for (const char* healthy : {kDown0, kDown2}) EXPECT_GT(of(report, healthy).cosine, 0.99);
}

TEST(Against, C089AGainOfOneAndAQuarterIsNamed) {
  Copies copies;
  const auto checkpoint = opened(copies.here.write());
  const float g = checkpoint->linear(kDown1)->ranges[0].g;
  copies.here.add_f32(named(kDown1, ".weight_scale_2"), {}, {g * 1.25F});
  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A2"));
  EXPECT_EQ(report.findings[0].slug, "clean-gain");
  EXPECT_EQ(report.findings[0].severity, Severity::kError);
  EXPECT_EQ(report.findings[0].tensor, kDown1);
  EXPECT_THAT(report.findings[0].message, HasSubstr("a factor of 1.25"));
  const WeightDifference& d = of(report, kDown1);
  EXPECT_EQ(d.ratio_name, "1.25");
  EXPECT_THAT(d.rms_ratio, DoubleNear(1.25, 0.01));
  EXPECT_GT(d.cosine, 0.99);
  expect_numbers(d, copies.here, copies.source);
}

TEST(Against, AFactorThatIsNotCleanIsAGainToo) {
  Copies copies;
  const auto checkpoint = opened(copies.here.write());
  const float g = checkpoint->linear(kDown2)->ranges[0].g;
  copies.here.add_f32(named(kDown2, ".weight_scale_2"), {}, {g * 1.12F});
  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A2"));
  EXPECT_EQ(of(report, kDown2).ratio_name, "");
  EXPECT_THAT(report.findings[0].message, HasSubstr("times the reference; the cosine"));
}

// Codes of 0.5 and 1 with scale 1 and g = 2^-10. Read the other way round, g is 2^10 and every
// value 2^20 times as large: the square of the g that was read.
TEST(Against, AConventionReadTheOtherWayRoundIsGSquared) {
  for (const bool divisor : {false, true}) {
    CheckpointFixture here;
    CheckpointFixture source;
    std::vector<float> values;
    for (int i = 0; i < 4 * 32; ++i) values.push_back(i % 2 == 0 ? 0x1p-11F : 0x1p-10F);
    source.add_bf16(named(kDown0, ".weight"), {4, 32}, values);
    here.fill(named(kDown0, divisor ? ".weight_packed" : ".weight"), "U8", {4, 16}, 0x21);
    here.fill(named(kDown0, ".weight_scale"), "F8_E4M3", {4, 2}, 0x38);
    if (divisor)
      here.add_f32(named(kDown0, ".weight_global_scale"), {1}, {0x1p-10F});
    else
      here.add_f32(named(kDown0, ".weight_scale_2"), {}, {0x1p10F});
    const AgainstReport report = against(here, source);
    ASSERT_THAT(ids(report), ElementsAre("A2"));
    EXPECT_EQ(report.tensors[0].rms_ratio, 0x1p20);
    EXPECT_EQ(report.tensors[0].ratio_name, "g^2");
    EXPECT_EQ(report.tensors[0].cosine, 1.0);
    EXPECT_THAT(report.findings[0].message, HasSubstr("g^2 of its global scale 1024"));
    EXPECT_THAT(report.findings[0].remedy, HasSubstr("reciprocal"));
    // And the reference read that way: its g is 2^10 as well.
    const AgainstReport mirrored = against(source, here);
    EXPECT_EQ(mirrored.tensors[0].ratio_name, "1/g^2");
  }
}

TEST(Against, SwappedNibblesAreRecognized) {
  Copies copies;
  for (uint8_t& byte : copies.here.tensor(named(kDown0, ".weight")).bytes)
    byte = static_cast<uint8_t>((byte << 4) | (byte >> 4));
  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A1"));
  EXPECT_EQ(report.findings[0].tensor, kDown0);
  EXPECT_THAT(report.findings[0].message, HasSubstr("codes of each byte are in the other order"));
  EXPECT_LT(of(report, kDown0).cosine, 0.2);
  EXPECT_GT(of(report, kDown0).swapped_cosine, 0.99);
}

// 0x38 (1) to 0x40 (2): the block's values double, an error of exactly 1.
TEST(Against, OneScaleByteIsFoundByItsBlock) {
  CheckpointFixture here;
  CheckpointFixture reference;
  for (CheckpointFixture* f : {&here, &reference}) f->add_linear(kDown0, 256, 512);
  here.tensor(named(kDown0, ".weight_scale")).bytes[200 * 32 + 19] = 0x40;
  const AgainstReport report = against(here, reference);
  const WeightDifference& d = of(report, kDown0);
  EXPECT_EQ(d.worst_row, 200);
  EXPECT_EQ(d.worst_block, 19);
  EXPECT_EQ(d.worst_block_error, 1.0);
  // One of 8192 equal blocks is off by its own norm: sqrt(1 / 8192).
  EXPECT_THAT(d.relative_l2, DoubleNear(std::sqrt(1.0 / 8192), 1e-12));
  ASSERT_THAT(ids(report), ElementsAre("A8"));
  EXPECT_THAT(report.findings[0].index, ElementsAre(200, 19));
  EXPECT_THAT(report.findings[0].message, HasSubstr("columns 304 to 319"));
}

TEST(Against, IdenticalCopiesAreEqualToTheLastBit) {
  CheckpointFixture f;
  testing::add_f_moe(f);
  f.add_bf16("model.norm.weight", {64}, 1.5F);
  CheckpointFixture g;
  testing::add_f_moe(g);
  g.add_bf16("model.norm.weight", {64}, 1.5F);
  const AgainstReport report = against(f, g);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(report.tensors, SizeIs(25));  // 24 linears of experts and the router
  for (const WeightDifference& d : report.tensors) {
    EXPECT_EQ(d.cosine, 1.0);
    EXPECT_EQ(d.relative_l2, 0.0);
    EXPECT_EQ(d.rms_ratio, 1.0);
    EXPECT_EQ(d.worst_row, -1);
  }
}

TEST(Against, TiedTablesStandForEachOther) {
  Copies copies;
  const std::vector<float> table = gaussian(32 * 64, 9);
  copies.source.add_bf16("model.embed_tokens.weight", {32, 64}, table);
  copies.here.add_bf16("model.embed_tokens.weight", {32, 64}, table);
  add_nvfp4(copies.here, "lm_head", table, 32, 64);
  const AgainstReport report = against(copies.here, copies.source);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(of(report, "lm_head").reference_module, "model.embed_tokens");
  EXPECT_EQ(of(report, "model.embed_tokens").relative_l2, 0.0);
  // A config that says otherwise: then it is missing.
  copies.source.write_file("config.json", R"({"tie_word_embeddings": false})");
  const AgainstReport untied = against(copies.here, copies.source);
  EXPECT_THAT(ids(untied), ElementsAre("A3"));
  EXPECT_THAT(untied.only_here, ElementsAre("lm_head"));
}

TEST(Against, WhatIsMissingIsCountedAndListed) {
  Copies copies;
  for (int i = 0; i < 10; ++i)
    copies.source.add_bf16("model.layers." + std::to_string(i) + ".self_attn.q_proj.weight", {4, 4},
                           0.5F);
  copies.here.add_bf16("model.layers.0.self_attn.sinks", {4}, 0.5F);
  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A3", "A4"));
  EXPECT_THAT(report.only_here, ElementsAre("model.layers.0.self_attn.sinks"));
  EXPECT_EQ(report.findings[0].severity, Severity::kWarning);
  EXPECT_EQ(report.findings[1].count, 10);
  EXPECT_THAT(report.findings[1].instances, SizeIs(8));
  EXPECT_THAT(report.findings[1].message, HasSubstr("10 of the reference are not in this"));
}

TEST(Against, TwoModelsWithNothingInCommonAreAnError) {
  CheckpointFixture here;
  here.add_linear(kDown0, 4, 32);
  CheckpointFixture other;
  other.add_bf16("transformer.h.0.mlp.c_proj.weight", {4, 32}, 1.0F);
  const AgainstReport report = against(here, other);
  ASSERT_THAT(ids(report), ElementsAre("A3", "A4"));
  EXPECT_EQ(report.findings[0].severity, Severity::kError);
  EXPECT_THAT(report.findings[0].message, HasSubstr("no linear of the two"));
}

TEST(Against, FusedProjectionsMeetTheirParts) {
  CheckpointFixture here;
  CheckpointFixture source;
  const std::vector<float> values = gaussian(64 * 64, 4);
  add_nvfp4(here, "model.layers.0.self_attn.qkv_proj", values, 64, 64);
  const auto part = [&](const char* name, int64_t begin, int64_t n) {
    source.add_bf16(std::string("model.layers.0.self_attn.") + name + ".weight", {n, 64},
                    {values.begin() + begin * 64, values.begin() + (begin + n) * 64});
  };
  part("q_proj", 0, 32);
  part("k_proj", 32, 16);
  part("v_proj", 48, 16);
  const AgainstReport report = against(here, source);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(report.tensors, SizeIs(3));
  EXPECT_GT(of(report, "model.layers.0.self_attn.v_proj").cosine, 0.99);
  EXPECT_THAT(against(source, here).findings, IsEmpty());
  // Parts that do not make up the whole.
  source.remove("model.layers.0.self_attn.v_proj.weight");
  part("v_proj", 48, 8);
  EXPECT_THAT(ids(against(here, source)), ElementsAre("A5"));
}

TEST(Against, ShapesThatDifferAreNotCompared) {
  Copies copies;
  copies.source.add_bf16(named(kDown0, ".weight"), {16, 64}, 0.5F);
  copies.source.add_bf16("model.norm.weight", {32}, 1.0F);
  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A5"));
  EXPECT_EQ(report.findings[0].count, 2);
  EXPECT_EQ(report.findings[0].severity, Severity::kError);
  EXPECT_THAT(report.tensors, SizeIs(2));
}

TEST(Against, ZerosAndNansAreHandled) {
  Copies copies;
  copies.here.fill(named(kDown0, ".weight"), "U8", {32, 32}, 0x00);  // zero here alone
  copies.here.fill(named(kDown1, ".weight"), "U8", {32, 32}, 0x88);  // zero on both sides
  copies.source.add_bf16(named(kDown1, ".weight"), {32, 64}, 0.0F);
  copies.here.tensor(named(kDown2, ".weight_scale")).bytes[4 * 3 + 1] = 0x7F;
  const AgainstReport report = against(copies.here, copies.source);
  EXPECT_EQ(of(report, kDown0).cosine, 0.0);
  EXPECT_EQ(of(report, kDown0).relative_l2, 1.0);
  EXPECT_EQ(of(report, kDown1).cosine, 1.0);
  EXPECT_EQ(of(report, kDown1).rms_ratio, 1.0);
  const WeightDifference& nan = of(report, kDown2);
  EXPECT_EQ(nan.n_nonfinite, 16);
  EXPECT_GT(nan.cosine, 0.99);
  EXPECT_EQ(nan.worst_row, 3);
  EXPECT_EQ(nan.worst_block, 1);
  EXPECT_EQ(nan.worst_block_error, kInfinity);
  ASSERT_THAT(ids(report), ElementsAre("A1", "A7"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("every value here is zero"));
  EXPECT_THAT(report.findings[1].message, HasSubstr("16 values of"));
  EXPECT_EQ(report.tensors[0].module, kDown2);
  // The other way round, zero is the reference's.
  const AgainstReport mirrored = against(copies.source, copies.here);
  EXPECT_EQ(of(mirrored, kDown0).cosine, 0.0);
  EXPECT_EQ(of(mirrored, kDown0).relative_l2, kInfinity);
  EXPECT_EQ(mirrored.findings.back().severity, Severity::kWarning);
}

TEST(Against, PlainTensorsAreEqualOrFindings) {
  Copies copies;
  copies.here.add_f32("model.a.bias", {4}, {1, 2, 3, 4.001F});  // BF16 of the source, rounded
  copies.source.add_bf16("model.a.bias", {4}, {1, 2, 3, 4});
  copies.here.add_bf16("model.b.bias", {3}, {3, 4, 1});  // |error| 0.5, |reference| 5
  copies.source.add_bf16("model.b.bias", {3}, {3, 4, 0.5F});
  copies.here.add_bf16("model.c.bias", {2}, {64, 64.5F});
  copies.source.add_bf16("model.c.bias", {2}, {64, 64});
  copies.here.add_f32("model.d.sinks", {2}, {-kInfinity, 1});
  copies.source.add_f32("model.d.sinks", {2}, {-kInfinity, 1});
  const AgainstReport report = against(copies.here, copies.source);
  ASSERT_THAT(ids(report), ElementsAre("A6", "A6"));
  EXPECT_EQ(report.findings[0].severity, Severity::kError);
  EXPECT_EQ(report.findings[0].tensor, "model.b.bias");
  EXPECT_THAT(*report.findings[0].value, DoubleNear(0.5 / std::sqrt(25.25), 1e-12));
  EXPECT_THAT(report.findings[0].message, HasSubstr("in 1 of 3 values, first at 2"));
  EXPECT_EQ(report.findings[1].severity, Severity::kWarning);
  EXPECT_THAT(*report.findings[1].value, DoubleNear(0.5 / (64 * std::numbers::sqrt2), 1e-12));
  EXPECT_EQ(report.n_plain, 5);
  EXPECT_EQ(report.n_plain_equal, 3);
}

// Unquantized on both sides, every value doubled by hand from FP8 blocks and from MXFP4.
TEST(Against, EverySchemeIsReadAsItsFormatSays) {
  CheckpointFixture here;
  CheckpointFixture source;
  std::vector<uint8_t> codes;
  for (int i = 0; i < 160 * 288; ++i) codes.push_back(static_cast<uint8_t>(i * 37 % 120));
  here.add("a.weight", "F8_E4M3", {160, 288}, codes);
  here.add_f32("a.weight_scale_inv", {2, 3}, {1, 2, 4, 0.5F, 0.25F, 0.125F});
  here.add("b.weight", "F8_E4M3", {160, 288}, codes);
  std::vector<float> channel(160);
  for (size_t i = 0; i < channel.size(); ++i) channel[i] = 1.0F + static_cast<float>(i % 7);
  here.add_f32("b.weight_scale", {160, 1}, channel);
  here.add("c.weight", "F8_E4M3", {160, 288}, codes);
  here.add_f32("c.weight_scale", {}, {0.75F});
  here.add("d.weight_packed", "U8", {160, 144}, {codes.begin(), codes.begin() + 160 * 144});
  here.fill("d.weight_scale", "U8", {160, 9}, 125);
  here.write_file("config.json", "{}");
  const auto checkpoint = opened(here.write());
  for (const char* module : {"a", "b", "c", "d"}) {
    const LinearRecord* record = checkpoint->linear(module);
    ASSERT_NE(record, nullptr) << module;
    source.add_f32(named(module, ".weight"), {160, 288}, dequantized(*record));
  }
  const AgainstReport report = against(here, source);
  EXPECT_THAT(report.tensors, SizeIs(4));
  for (const WeightDifference& d : report.tensors) EXPECT_EQ(d.relative_l2, 0.0) << d.module;
  EXPECT_THAT(report.findings, IsEmpty());
}

TEST(Against, APreQuantScaleBelongsToTheWeight) {
  CheckpointFixture here;
  CheckpointFixture source;
  here.add_linear(kDown0, 4, 32);  // 0.5 * (0.5, 1, 0.5, 1, ...)
  std::vector<float> columns;
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) columns.push_back(i < 16 ? 1.0F : 4.0F);
  for (int i = 0; i < 4 * 32; ++i)
    values.push_back((i % 2 == 0 ? 0.25F : 0.5F) * columns[static_cast<size_t>(i % 32)]);
  here.add_f32(named(kDown0, ".pre_quant_scale"), {32}, columns);
  source.add_bf16(named(kDown0, ".weight"), {4, 32}, values);
  const AgainstReport report = against(here, source);
  EXPECT_EQ(of(report, kDown0).relative_l2, 0.0);
}

TEST(Against, NumbersDoNotDependOnThreads) {
  CheckpointFixture here;
  CheckpointFixture source;
  const std::vector<float> values = gaussian(300 * 512, 3);  // three slices
  source.add_bf16(named(kDown0, ".weight"), {300, 512}, values);
  add_nvfp4(here, kDown0, values, 300, 512);
  const AgainstReport one = against(here, source, 1);
  const AgainstReport four = against(here, source, 4);
  EXPECT_EQ(of(one, kDown0).cosine, of(four, kDown0).cosine);
  EXPECT_EQ(of(one, kDown0).relative_l2, of(four, kDown0).relative_l2);
  EXPECT_EQ(of(one, kDown0).worst_row, of(four, kDown0).worst_row);
  expect_numbers(of(one, kDown0), here, source);
}

// A quantized file shares its norms and its config's name with its source, and is no copy of it.
TEST(CompareCopies, OnlyCopiesAreHeldToEveryByte) {
  testing::CheckpointFixture original;
  testing::add_f_moe(original);
  testing::CheckpointFixture damaged;
  testing::add_f_moe(damaged);
  damaged.tensor("model.layers.0.mlp.experts.2.up_proj.weight_scale").bytes[5] = 0x39;
  testing::CheckpointFixture other;
  testing::add_f_moe(other);
  other.remove("model.layers.0.mlp.experts.2.up_proj.weight_scale_2");
  const auto a = Checkpoint::open(original.write());
  const auto b = Checkpoint::open(damaged.write());
  const auto c = Checkpoint::open(other.write());
  ASSERT_TRUE(a && b && c);
  const std::vector<Finding> found = compare_copies(**b, **a);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].slug, "not-a-copy");
  EXPECT_EQ(found[0].tensor, "model.layers.0.mlp.experts.2.up_proj.weight_scale");
  EXPECT_TRUE(compare_copies(**a, **a).empty());
  EXPECT_TRUE(compare_copies(**c, **a).empty());
}

}  // namespace
}  // namespace sextant
