// Policies as cli.md section 5 writes them.
#include "model/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sextant {
namespace {

using ::testing::HasSubstr;

Result<Policy> parse(std::vector<std::string> specs) { return parse_policy(specs); }

LinearRecord record_of(Scheme scheme, std::optional<float> input_scale = {}) {
  LinearRecord record;
  record.scheme = scheme;
  record.input_scale = input_scale;
  if (input_scale) record.input_divisor = 1.0F / *input_scale;
  return record;
}
const LinearRecord kPlain = record_of(Scheme::kBf16);

LinearPolicy of(const Result<Policy>& policy, std::string_view module,
                const LinearRecord& record = kPlain) {
  return policy->for_linear(module, record);
}

TEST(Policy, the_default_is_a16_as_stored) {
  const auto policy = parse({});
  ASSERT_TRUE(policy.has_value());
  EXPECT_EQ(of(policy, "lm_head").act, Act::kA16);
  EXPECT_EQ(of(policy, "lm_head").weights, Weights::kStored);
}

TEST(Policy, a_later_rule_wins) {
  const auto policy = parse({"f32", "*.mlp.*=a16,weights=bf16", "model.layers.1.*=f32"});
  ASSERT_TRUE(policy.has_value()) << policy.error().text;
  EXPECT_EQ(of(policy, "lm_head").act, Act::kF32);
  EXPECT_EQ(of(policy, "model.layers.0.mlp.up_proj").act, Act::kA16);
  EXPECT_EQ(of(policy, "model.layers.0.mlp.up_proj").weights, Weights::kBf16);
  EXPECT_EQ(of(policy, "model.layers.1.mlp.up_proj").act, Act::kF32);
  EXPECT_EQ(of(policy, "model.layers.1.mlp.up_proj").weights, Weights::kStored);
  EXPECT_EQ(policy->rules.back().spec, "model.layers.1.*=f32");
}

TEST(Policy, routers_are_float32_unless_a_pattern_names_them) {
  const char* router = "model.layers.0.mlp.gate";
  for (const std::vector<std::string>& specs :
       {std::vector<std::string>{}, {"a16"}, {"a16,weights=bf16"}, {"*.self_attn.*=a16"}, {"a8"}}) {
    const auto policy = parse(specs);
    ASSERT_TRUE(policy.has_value());
    EXPECT_EQ(policy->for_router(router, kPlain).act, Act::kF32);
    EXPECT_EQ(policy->for_router(router, kPlain).weights, Weights::kStored);
  }
  const auto policy = parse({"*.gate=a16,weights=bf16", "f32"});
  ASSERT_TRUE(policy.has_value());
  EXPECT_EQ(policy->for_router(router, kPlain).act, Act::kF32);  // the last rule that matches
  EXPECT_EQ(parse({"*=a16"})->for_router(router, kPlain).act, Act::kA16);
}

TEST(Policy, weights_without_a_pattern) {
  const auto policy = parse({"a16,weights=f32"});
  ASSERT_TRUE(policy.has_value()) << policy.error().text;
  EXPECT_EQ(of(policy, "x").weights, Weights::kF32);
}

// cli.md section 5: every form, and what each needs of the checkpoint.
TEST(Policy, every_form_of_activations) {
  const LinearRecord nvfp4 = record_of(Scheme::kNvfp4, 0.25F);
  const LinearRecord fp8 = record_of(Scheme::kFp8Tensor, 0.5F);
  struct Case {
    const char* spec;
    Act act;
    const LinearRecord* record;
    InputQuantizer expected;
  };
  const auto a4 = [](InputScale scale, float divisor, float multiplier) {
    return InputQuantizer{InputForm::kNvfp4, scale, true, Nvfp4Profile::kA, divisor, multiplier};
  };
  const Case cases[] = {
      {"f32", Act::kF32, &nvfp4, {}},
      {"a16", Act::kA16, &nvfp4, {}},
      {"a8", Act::kA8, &nvfp4, {InputForm::kInt8, InputScale::kStatic, true}},
      {"a8:fp8",
       Act::kA8Fp8,
       &fp8,
       {InputForm::kFp8, InputScale::kStatic, true, Nvfp4Profile::kA, 1.0F, 0.5F}},
      {"a4:static", Act::kA4Static, &nvfp4, a4(InputScale::kStatic, 4.0F, 0.25F)},
      {"a4:static*8", Act::kA4Static, &nvfp4, a4(InputScale::kStatic, 0.5F, 2.0F)},
      {"a4:dynamic", Act::kA4Dynamic, &nvfp4, a4(InputScale::kTensor, 1.0F, 1.0F)},
      {"a4:token", Act::kA4Token, &nvfp4, a4(InputScale::kToken, 1.0F, 1.0F)},
      {"a4:one", Act::kA4One, &nvfp4, a4(InputScale::kStatic, 1.0F, 1.0F)},
  };
  for (const Case& c : cases) {
    const auto policy = parse({c.spec});
    ASSERT_TRUE(policy.has_value()) << c.spec << ": " << policy.error().text;
    const LinearPolicy linear = of(policy, "x", *c.record);
    EXPECT_EQ(linear.act, c.act) << c.spec;
    EXPECT_EQ(linear.unmet, Unmet::kNone) << c.spec;
    EXPECT_EQ(input_quantizer(linear, *c.record), c.expected) << c.spec;
  }
  EXPECT_EQ(of(parse({"a4:one,quantizer=C"}), "x", nvfp4).quantizer, Nvfp4Profile::kC);
  // An FP8 linear without a scale takes one a row.
  const LinearRecord bare = record_of(Scheme::kFp8Block);
  EXPECT_EQ(input_quantizer(of(parse({"a8:fp8"}), "x", bare), bare).scale, InputScale::kToken);
}

// A linear that cannot follow a rule takes its inputs as the rule before says.
TEST(Policy, a_rule_that_cannot_be_followed_leaves_it_to_the_one_before) {
  const LinearRecord bare = record_of(Scheme::kNvfp4);
  const LinearRecord fp8 = record_of(Scheme::kFp8Tensor, 0.5F);
  const auto policy = parse({"a4:static,weights=bf16"});
  EXPECT_EQ(of(policy, "x", bare).act, Act::kA16);
  EXPECT_EQ(of(policy, "x", bare).weights, Weights::kBf16);
  EXPECT_EQ(of(policy, "x", bare).unmet, Unmet::kNoInputScale);
  EXPECT_EQ(of(policy, "x").unmet, Unmet::kNotQuantized);
  const auto chain = parse({"f32", "a8:fp8", "a4:static"});
  EXPECT_EQ(of(chain, "x", fp8).act, Act::kA8Fp8);
  EXPECT_EQ(of(chain, "x", bare).act, Act::kF32);
  EXPECT_EQ(of(chain, "x").act, Act::kF32);
  auto warmup = parse({"a4:warmup"});
  EXPECT_EQ(of(warmup, "x", bare).unmet, Unmet::kNoWarmup);
  warmup->warmup_scales["x"] = 0.125F;
  EXPECT_EQ(of(warmup, "x", bare).unmet, Unmet::kNone);
  EXPECT_EQ(of(warmup, "y", bare).unmet, Unmet::kNoWarmup);
  const InputQuantizer measured = input_quantizer(of(warmup, "x", bare), bare);
  EXPECT_EQ(measured.divisor, 8.0F);
  EXPECT_EQ(measured.multiplier, 0.125F);
}

// What a quantizer is given is BF16, as on a GPU, unless float32 is asked for below it.
TEST(Policy, what_is_quantized_comes_in_as_the_plain_rule_below_says) {
  const LinearRecord nvfp4 = record_of(Scheme::kNvfp4, 0.25F);
  EXPECT_TRUE(of(parse({"a4:static"}), "x", nvfp4).from_bf16);
  EXPECT_FALSE(of(parse({"f32", "a4:static"}), "x", nvfp4).from_bf16);
  EXPECT_TRUE(of(parse({"f32", "a16", "a4:one", "a4:static"}), "x", nvfp4).from_bf16);
}

// auto: what the checkpoint is made for, where nothing speaks against it.
TEST(Policy, auto_takes_sound_input_scales_and_says_why) {
  auto policy = parse({"auto"});
  ASSERT_TRUE(policy.has_value()) << policy.error().text;
  policy->distrusted_inputs["bad"] = "C12 uncalibrated-expert";
  const LinearRecord nvfp4 = record_of(Scheme::kNvfp4, 0.25F);
  EXPECT_EQ(of(policy, "good", nvfp4).act, Act::kA4Static);
  LinearRecord bad = nvfp4;
  bad.module = "bad";
  EXPECT_EQ(of(policy, "bad", bad).act, Act::kA16);
  EXPECT_THAT(of(policy, "bad", bad).why, HasSubstr("C12"));
  EXPECT_EQ(of(policy, "x", record_of(Scheme::kFp8Tensor, 0.5F)).act, Act::kA8Fp8);
  EXPECT_EQ(of(policy, "x", record_of(Scheme::kFp8Block)).act, Act::kA16);
  EXPECT_EQ(of(policy, "x", record_of(Scheme::kNvfp4)).act, Act::kA16);
  EXPECT_EQ(of(policy, "x").act, Act::kA16);
  EXPECT_EQ(of(policy, "x").unmet, Unmet::kNone);
  EXPECT_EQ(of(parse({"f32", "auto,quantizer=B"}), "x").act, Act::kF32);
  EXPECT_EQ(of(parse({"auto,quantizer=B"}), "x", nvfp4).quantizer, Nvfp4Profile::kB);
}

// What a broken input scale refuses: the policies of its own linear, not those of others.
TEST(Policy, the_last_rule_that_a_linear_can_follow_wants_its_input_scale) {
  const LinearRecord nvfp4 = record_of(Scheme::kNvfp4);
  const LinearRecord fp8 = record_of(Scheme::kFp8Tensor);
  const auto wants = [](std::initializer_list<const char*> specs, const char* module,
                        const LinearRecord& record) {
    return parse({specs.begin(), specs.end()})->wants_input_scale(module, record);
  };
  EXPECT_TRUE(wants({"a4:static"}, "attn.q", nvfp4));
  EXPECT_FALSE(wants({"a4:static", "attn.*=a16,weights=bf16"}, "attn.q", nvfp4));
  EXPECT_TRUE(wants({"a4:static", "attn.*=a16,weights=bf16"}, "mlp.up", nvfp4));
  EXPECT_TRUE(wants({"a4:static", "attn.*=auto"}, "attn.q", nvfp4));
  EXPECT_FALSE(wants({"a4:static", "attn.*=a4:warmup"}, "attn.q", nvfp4));
  EXPECT_FALSE(wants({"a4:static", "attn.*=a4:token"}, "attn.q", nvfp4));
  EXPECT_TRUE(wants({"a4:static", "a8:fp8"}, "attn.q", nvfp4));
  EXPECT_TRUE(wants({"a8:fp8"}, "attn.q", fp8));
  EXPECT_FALSE(wants({"a4:static"}, "attn.q", fp8));
  EXPECT_FALSE(wants({"auto"}, "attn.q", nvfp4));
}

TEST(Policy, bad_specs_are_usage_errors) {
  for (const char* spec : {"",
                           "f16",
                           "a16,",
                           "a16,weights=int8",
                           "a16,weights",
                           "=f32",
                           "x=",
                           "a16,quantizer=Z",
                           "f32,quantizer=A",
                           "weights=bf16",
                           "a16,f32",
                           "a",
                           "F32",
                           "a4",
                           "a4:",
                           "a4:static*",
                           "a4:static*0",
                           "a4:static*-2",
                           "a4:static*nan",
                           "a4:static*2x",
                           "a4:one*2",
                           "a8:int",
                           "a4:one,quantizer=D",
                           "a4:one,quantizer=T",
                           "a8,quantizer=A",
                           "a16,weights=bf16,weights=f32",
                           "a4:one,quantizer=A,quantizer=A"}) {
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
