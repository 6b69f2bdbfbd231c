// Every dense golden directory opened: dialect, schemes, counts, activation scales, and dequantized
// values against those that numpy worked out (testing/golden_values.json, made by
// tools/golden/checkpoint_values.py), bit for bit.
#include <bit>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/directory.h"
#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

using testing::dequantized;
using testing::find;
using testing::opened;
using testing::scanned;
using testing::with_severity;

std::filesystem::path golden() {
  const char* place = std::getenv("SEXTANT_GOLDEN");
  return place != nullptr ? std::filesystem::path(place)
                          : std::filesystem::path(SX_SOURCE_DIR) / "tests" / "golden";
}

std::string expected_dialect(std::string_view name) {
  if (name.starts_with("modelopt")) return "modelopt";
  if (name.starts_with("ct-")) return "compressed-tensors";
  return name.starts_with("fp8") ? "fp8" : "plain";
}

void check_samples(const Checkpoint& checkpoint, const std::string& module,
                   const JsonValue& samples) {
  const LinearRecord* record = checkpoint.linear(module);
  ASSERT_NE(record, nullptr) << module;
  const std::vector<float> values = dequantized(*record);
  for (const JsonValue& sample : samples.array()) {
    const int64_t row = sample.array()[0].as_int();
    const int64_t column = sample.array()[1].as_int();
    ASSERT_LT(row * record->k + column, static_cast<int64_t>(values.size()));
    const float value = values[static_cast<size_t>(row * record->k + column)];
    EXPECT_EQ(std::bit_cast<uint32_t>(value), static_cast<uint32_t>(sample.array()[2].as_int()))
        << module << " " << row << " " << column << " " << value;
  }
}

TEST(Golden, EveryDenseDirectoryIsReadAsNumpyReadsIt) {
  const auto expected =
      read_json(std::filesystem::path(SX_SOURCE_DIR) / "src/checkpoint/testing/golden_values.json");
  ASSERT_TRUE(expected) << expected.error().text;
  ASSERT_GE(expected->members().size(), 18U);
  for (const auto& [name, facts] : expected->members()) {
    SCOPED_TRACE(name);
    const auto checkpoint = opened(golden() / name);
    ASSERT_NE(checkpoint, nullptr);
    EXPECT_EQ(checkpoint->dialect(), expected_dialect(name));
    EXPECT_EQ(static_cast<int64_t>(checkpoint->tensors().size()), facts.find("tensors")->as_int());
    std::map<std::string, int64_t> schemes;
    for (const auto& [module, record] : checkpoint->linears())
      ++schemes[std::string(scheme_name(record.scheme))];
    EXPECT_EQ(schemes.size(), facts.find("schemes")->members().size());
    for (const auto& [scheme, count] : facts.find("schemes")->members())
      EXPECT_EQ(schemes[scheme], count.as_int()) << scheme;
    for (const auto& [module, samples] : facts.find("samples")->members())
      check_samples(*checkpoint, module, samples);
    for (const Finding& finding : checkpoint->findings())
      EXPECT_EQ(finding.severity, Severity::kNote) << finding.message;
    EXPECT_TRUE(scanned(*checkpoint).empty());
  }
}

TEST(Golden, EveryTensorIsExplained) {
  const auto expected =
      read_json(std::filesystem::path(SX_SOURCE_DIR) / "src/checkpoint/testing/golden_values.json");
  ASSERT_TRUE(expected);
  for (const auto& [name, facts] : expected->members()) {
    const auto checkpoint = opened(golden() / name);
    ASSERT_NE(checkpoint, nullptr);
    size_t n = 0;
    for (const auto& [module, record] : checkpoint->linears()) {
      n += checkpoint->tensors_of(record).size();
      EXPECT_EQ(record.ranges.empty(),
                record.scheme != Scheme::kNvfp4 && record.scheme != Scheme::kFp8Tensor);
      const int64_t covered = record.ranges.empty() ? record.n : record.ranges.back().row_end;
      EXPECT_EQ(covered, record.n);
    }
    for (const auto& [tensor, ref] : checkpoint->tensors())
      if (tensor.ends_with(".bias") || tensor.find("norm") != std::string::npos) ++n;
    EXPECT_EQ(n, checkpoint->tensors().size()) << name;
  }
}

TEST(Golden, SeparateScalesStaySeparateAndInputScalesAreThere) {
  const auto separate = opened(golden() / "modelopt-llama3-separate");
  ASSERT_NE(separate, nullptr);
  const auto* q = separate->linear("model.layers.0.self_attn.q_proj");
  const auto* k = separate->linear("model.layers.0.self_attn.k_proj");
  ASSERT_NE(q, nullptr);
  EXPECT_NE(q->ranges[0].g, k->ranges[0].g);
  EXPECT_TRUE(q->input_scale.has_value());
  EXPECT_EQ(q->config_group, "NVFP4");
  EXPECT_EQ(separate->linear("lm_head")->config_group, "config.json ignore: lm_head");
  EXPECT_NE(find(*separate, "fused-scale-ratio"), nullptr);
  EXPECT_EQ(separate->files().size(), 2U);
  const auto shared = opened(golden() / "modelopt-llama3-shared");
  EXPECT_EQ(find(*shared, "fused-scale-ratio"), nullptr);
  const auto a16 = opened(golden() / "ct-llama3-nvfp4a16");
  EXPECT_FALSE(a16->linear("model.layers.0.mlp.up_proj")->input_scale.has_value());
}

TEST(Golden, AnExpertWithoutInputScalesIsNamed) {
  const auto moe = opened(golden() / "modelopt-qwen3-moe");
  const Finding* finding = find(*moe, "missing-input-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->layer, 1);
  EXPECT_EQ(finding->expert, 2);
  EXPECT_EQ(finding->count, 3);
  EXPECT_TRUE(finding->activation_only);
  EXPECT_TRUE(refuse_errors(moe->findings(), false));
}

// Directories that only the full golden set has.
TEST(Golden, OtherFamiliesWhereTheyAre) {
  if (!std::filesystem::exists(golden() / "gpt-oss-mxfp4"))
    GTEST_SKIP() << "the compact golden set has the families that run";
  const struct {
    const char* name;
    const char* dialect;
  } kOthers[] = {
      {"gpt-oss-mxfp4", "mxfp4"},           {"mixtral", "plain"},
      {"glm4-moe-plain", "plain"},          {"deepseek_v3_fp8", "fp8"},
      {"deepseek_v3_nvfp4", "modelopt"},    {"deepseek_v4_nvfp4_ct", "compressed-tensors"},
      {"deepseek_v4_nvfp4_nv", "modelopt"}, {"deepseek_v4_nvfp4_modelopt_own", "modelopt"},
      {"deepseek_v4_release", "deepseek"}};
  for (const auto& other : kOthers) {
    const auto checkpoint = opened(golden() / other.name);
    ASSERT_NE(checkpoint, nullptr) << other.name;
    EXPECT_EQ(checkpoint->dialect(), other.dialect) << other.name;
    for (const Finding& f : with_severity(*checkpoint, Severity::kError))
      ADD_FAILURE() << other.name << ": " << f.message;
    EXPECT_TRUE(scanned(*checkpoint).empty());
  }
  const auto glm = opened(golden() / "glm4-moe-plain");
  EXPECT_EQ(glm->harmless_tensors().count("model.layers.2.eh_proj.weight"), 1U);
}

}  // namespace
}  // namespace sextant
