// Policies as cli.md section 5 writes them.
#include "model/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sextant {
namespace {

using ::testing::HasSubstr;

Result<Policy> parse(std::vector<std::string> specs) { return parse_policy(specs); }

TEST(Policy, the_default_is_a16_as_stored) {
  const auto policy = parse({});
  ASSERT_TRUE(policy.has_value());
  EXPECT_EQ(policy->for_module("lm_head").act, Act::kA16);
  EXPECT_EQ(policy->for_module("lm_head").weights, Weights::kStored);
}

TEST(Policy, a_later_rule_wins) {
  const auto policy = parse({"f32", "*.mlp.*=a16,weights=bf16", "model.layers.1.*=f32"});
  ASSERT_TRUE(policy.has_value()) << policy.error().text;
  EXPECT_EQ(policy->for_module("lm_head").act, Act::kF32);
  EXPECT_EQ(policy->for_module("model.layers.0.mlp.up_proj").act, Act::kA16);
  EXPECT_EQ(policy->for_module("model.layers.0.mlp.up_proj").weights, Weights::kBf16);
  EXPECT_EQ(policy->for_module("model.layers.1.mlp.up_proj").act, Act::kF32);
  EXPECT_EQ(policy->for_module("model.layers.1.mlp.up_proj").weights, Weights::kStored);
  EXPECT_EQ(policy->rules.back().spec, "model.layers.1.*=f32");
}

TEST(Policy, routers_are_float32_unless_a_pattern_names_them) {
  const char* router = "model.layers.0.mlp.gate";
  for (const std::vector<std::string>& specs :
       {std::vector<std::string>{}, {"a16"}, {"a16,weights=bf16"}, {"*.self_attn.*=a16"}}) {
    const auto policy = parse(specs);
    ASSERT_TRUE(policy.has_value());
    EXPECT_EQ(policy->for_router(router).act, Act::kF32);
    EXPECT_EQ(policy->for_router(router).weights, Weights::kStored);
  }
  const auto policy = parse({"*.gate=a16,weights=bf16", "f32"});
  ASSERT_TRUE(policy.has_value());
  EXPECT_EQ(policy->for_router(router).act, Act::kA16);
  EXPECT_EQ(policy->for_router(router).weights, Weights::kBf16);
  EXPECT_EQ(parse({"*=a16"})->for_router(router).act, Act::kA16);
}

TEST(Policy, weights_without_a_pattern) {
  const auto policy = parse({"a16,weights=f32"});
  ASSERT_TRUE(policy.has_value()) << policy.error().text;
  EXPECT_EQ(policy->for_module("x").weights, Weights::kF32);
}

TEST(Policy, later_versions_policies_are_unsupported_by_name) {
  for (const char* spec : {"a8", "a8:fp8", "a4:static", "a4:static*1.5", "a4:warmup", "a4:dynamic",
                           "lm_head=a4:token", "a4:one,quantizer=B"}) {
    const auto policy = parse({spec});
    ASSERT_FALSE(policy.has_value()) << spec;
    EXPECT_EQ(policy.error().code, Code::kUnsupported) << spec;
    EXPECT_THAT(policy.error().text, HasSubstr(spec));
  }
}

TEST(Policy, bad_specs_are_usage_errors) {
  for (const char* spec :
       {"", "f16", "a16,", "a16,weights=int8", "a16,weights", "=f32", "x=", "a16,quantizer=Z",
        "f32,quantizer=A", "weights=bf16", "a16,f32", "a", "F32"}) {
    const auto policy = parse({spec});
    ASSERT_FALSE(policy.has_value()) << spec;
    EXPECT_EQ(policy.error().code, Code::kUsage) << spec;
  }
}

TEST(Policy, a_pattern_that_matches_nothing) {
  const std::vector<std::string> modules = {"model.layers.0.mlp.up_proj", "lm_head"};
  EXPECT_TRUE(check_patterns(*parse({"f32", "lm_*=a16"}), modules).has_value());
  const auto status = check_patterns(*parse({"f32", "lm_heat=a16"}), modules);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kUsage);
  EXPECT_THAT(status.error().text, HasSubstr("lm_heat"));
}

}  // namespace
}  // namespace sextant
