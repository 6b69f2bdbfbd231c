// config.json: both styles, the families' rules, and every way a field can be wrong (serving.md 5.5
// inputs 42 to 46).
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/ordered_json.h"

namespace sextant {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "eos_token_id": 2, "bos_token_id": 1})");
}

Json qwen2() {
  Json config = llama();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["model_type"] = "qwen2";
  return config;
}

Json qwen3_moe() {
  Json config = llama();
  config["architectures"] = {"Qwen3MoeForCausalLM"};
  config["model_type"] = "qwen3_moe";
  config["num_experts"] = 8;
  config["num_experts_per_tok"] = 3;
  config["moe_intermediate_size"] = 48;
  return config;
}

Result<ModelConfig> read(const Json& config, const Json* generation = nullptr) {
  const auto parsed = parse_json(config.dump(), "config.json");
  EXPECT_TRUE(parsed.has_value());
  if (generation == nullptr) return read_model_config(*parsed, nullptr);
  const auto second = parse_json(generation->dump(), "generation_config.json");
  EXPECT_TRUE(second.has_value());
  return read_model_config(*parsed, &*second);
}

void expect_error(const Json& config, Code code, const ::testing::Matcher<std::string>& text,
                  const std::string& field) {
  const auto result = read(config);
  ASSERT_FALSE(result.has_value()) << config.dump();
  EXPECT_EQ(result.error().code, code) << result.error().text;
  EXPECT_THAT(result.error().text, text);
  EXPECT_EQ(result.error().where.field, field);
}

TEST(Config, hub_style) {
  const auto c = read(llama());
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_EQ(c->architecture, "LlamaForCausalLM");
  EXPECT_EQ(c->n_layers, 3);
  EXPECT_EQ(c->head_dim, 16);  // 64 / 4
  EXPECT_EQ(c->n_kv_heads, 2);
  EXPECT_EQ(c->rope.kind, RopeKind::kDefault);
  EXPECT_FALSE(c->tied_embeddings);
  EXPECT_FALSE(c->qkv_bias);
  EXPECT_THAT(c->eos_ids, ElementsAre(2));
  EXPECT_EQ(c->bos_id, 1);
  EXPECT_THAT(c->window, ElementsAre(0, 0, 0));
  EXPECT_EQ(c->max_context, 128);
}

TEST(Config, new_style_has_rope_in_one_object) {
  Json config = llama();
  config.erase("rope_theta");
  config["dtype"] = "bfloat16";
  config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                               {"factor", 8.0},           {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 40}};
  const auto c = read(config);
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_EQ(c->rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(c->rope.theta, 500000.0);
  EXPECT_EQ(c->rope.original_max_position, 40);
  EXPECT_EQ(c->max_context, 128);  // llama3 states the stretched length
}

TEST(Config, old_spelling_of_the_rope_type) {
  Json config = llama();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  const auto c = read(config);
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_EQ(c->rope.kind, RopeKind::kLinear);
  EXPECT_EQ(c->max_context, 512);
}

TEST(Config, yarn_defaults) {
  Json config = llama();
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 32}};
  const auto c = read(config);
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_EQ(c->rope.factor, 4.0);  // 128 / 32
  EXPECT_EQ(c->rope.beta_fast, 32.0);
  EXPECT_EQ(c->rope.beta_slow, 1.0);
  EXPECT_TRUE(c->rope.truncate);
  EXPECT_EQ(c->max_context, 128);
}

TEST(Config, families) {
  Json config = llama();
  config["architectures"] = {"Qwen3ForCausalLM"};
  config["model_type"] = "qwen3";
  const auto qwen3 = read(config);
  ASSERT_TRUE(qwen3.has_value()) << qwen3.error().text;
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_FALSE(qwen3->qkv_bias);
  EXPECT_EQ(qwen3->head_dim, 128);  // its own default, not 64 / 4

  const auto two = read(qwen2());
  ASSERT_TRUE(two.has_value()) << two.error().text;
  EXPECT_TRUE(two->qkv_bias);
  EXPECT_FALSE(two->o_bias);

  config = llama();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const auto biased = read(config);
  ASSERT_TRUE(biased.has_value());
  EXPECT_TRUE(biased->qkv_bias && biased->o_bias && biased->mlp_bias);
}

TEST(Config, windows) {
  Json config = llama();
  config["architectures"] = {"MistralForCausalLM"};
  config["model_type"] = "mistral";
  EXPECT_THAT(read(config)->window, ElementsAre(4096, 4096, 4096));  // transformers' default
  config["sliding_window"] = nullptr;
  EXPECT_THAT(read(config)->window, ElementsAre(0, 0, 0));
  config["sliding_window"] = 16;
  EXPECT_THAT(read(config)->window, ElementsAre(16, 16, 16));

  config = qwen2();
  config["sliding_window"] = 12;
  config["max_window_layers"] = 1;
  EXPECT_THAT(read(config)->window, ElementsAre(0, 0, 0));  // use_sliding_window is false
  config["use_sliding_window"] = true;
  EXPECT_THAT(read(config)->window, ElementsAre(0, 12, 12));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(read(config)->window, ElementsAre(12, 0, 0));
  config["use_sliding_window"] = false;
  expect_error(config, Code::kModel, HasSubstr("layer 0"), "layer_types");
  config["layer_types"] = {"full_attention", "full_attention"};
  expect_error(config, Code::kModel, AllOf(HasSubstr("2 layers"), HasSubstr("says 3")),
               "layer_types");

  config = llama();
  config["sliding_window"] = 16;
  expect_error(config, Code::kUnsupported, HasSubstr("sliding_window is 16"), "sliding_window");
}

TEST(Config, end_tokens_of_both_files) {
  const Json generation = {{"eos_token_id", {7, 2, 9}}};
  const auto c = read(llama(), &generation);
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_THAT(c->eos_ids, ElementsAre(2, 7, 9));
  const Json bad = {{"eos_token_id", 320}};
  const auto error = read(llama(), &bad);
  ASSERT_FALSE(error.has_value());
  EXPECT_THAT(error.error().text, AllOf(HasSubstr("generation_config.json"), HasSubstr("320")));
}

TEST(Config, layers_out_of_range) {  // input 42
  for (const Json& bad : {Json(-1), Json(0), Json(int64_t{1} << 31), Json(1.5), Json("32")}) {
    Json config = llama();
    config["num_hidden_layers"] = bad;
    expect_error(config, Code::kInput, AllOf(HasSubstr("num_hidden_layers"), HasSubstr(bad.dump())),
                 "num_hidden_layers");
  }
  Json config = llama();
  config.erase("num_hidden_layers");
  expect_error(config, Code::kInput, HasSubstr("missing"), "num_hidden_layers");
}

TEST(Config, shapes_that_do_not_fit) {  // input 43
  Json config = llama();
  config["num_attention_heads"] = 0;
  expect_error(config, Code::kInput, HasSubstr("num_attention_heads is 0"), "num_attention_heads");
  config = llama();
  config["num_key_value_heads"] = 3;
  expect_error(config, Code::kModel, AllOf(HasSubstr("4"), HasSubstr("3")), "num_key_value_heads");
  config["num_key_value_heads"] = 0;
  expect_error(config, Code::kInput, HasSubstr("is 0"), "num_key_value_heads");
  config = llama();
  config["hidden_size"] = 66;
  expect_error(config, Code::kModel, AllOf(HasSubstr("66"), HasSubstr("4")), "hidden_size");
  config = llama();
  config["head_dim"] = 15;
  expect_error(config, Code::kInput, HasSubstr("15"), "head_dim");
}

TEST(Config, rope_out_of_range) {  // input 44
  for (const Json& bad : {Json(0), Json(-1.0), Json("NaN"), Json(1e300)}) {
    Json config = llama();
    config["rope_theta"] = bad;
    expect_error(config, Code::kInput, HasSubstr("rope_theta"), "rope_theta");
  }
  Json config = llama();
  config["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 4.0}};
  expect_error(config, Code::kUnsupported, HasSubstr("longrope"), "rope_scaling.rope_type");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 1e30}};
  expect_error(config, Code::kInput, HasSubstr("1e+30"), "rope_scaling.factor");
  config["rope_scaling"] = {{"rope_type", "linear"}};
  expect_error(config, Code::kInput, HasSubstr("missing"), "rope_scaling.factor");
  config["rope_scaling"] = {{"rope_type", "default"}, {"rope_theta", 5.0}};
  expect_error(config, Code::kModel, AllOf(HasSubstr("10000"), HasSubstr("5")),
               "rope_scaling.rope_theta");
  config["rope_scaling"] = 3;
  expect_error(config, Code::kInput, HasSubstr("rope_scaling is 3"), "rope_scaling");
}

TEST(Config, a_huge_context_is_accepted) {  // input 45: memory caps it later
  Json config = llama();
  config["max_position_embeddings"] = int64_t{1} << 40;
  const auto c = read(config);
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_EQ(c->max_context, int64_t{1} << 40);
}

TEST(Config, unknown_architecture) {  // input 46
  Json config = llama();
  config["architectures"] = {"MambaForCausalLM"};
  config["auto_map"] = {{"AutoModelForCausalLM", "evil.py--Model"}};
  expect_error(
      config, Code::kUnsupported,
      AllOf(HasSubstr("MambaForCausalLM"), HasSubstr("LlamaForCausalLM"), HasSubstr("never run")),
      "architectures");
  config = llama();
  config["model_type"] = "mistral";
  expect_error(config, Code::kModel, AllOf(HasSubstr("mistral"), HasSubstr("LlamaForCausalLM")),
               "model_type");
  config = llama();
  config["hidden_act"] = "gelu";
  expect_error(config, Code::kUnsupported, HasSubstr("gelu"), "hidden_act");
  config = llama();
  config["partial_rotary_factor"] = 0.5;
  expect_error(config, Code::kUnsupported, HasSubstr("0.5"), "partial_rotary_factor");
}

TEST(Config, experts) {
  Json config = qwen3_moe();
  const auto c = read(config);
  ASSERT_TRUE(c.has_value()) << c.error().text;
  EXPECT_EQ(c->n_experts, 8);
  EXPECT_EQ(c->top_k, 3);
  EXPECT_EQ(c->d_ff_expert, 48);
  EXPECT_EQ(c->d_ff, 160);
  EXPECT_FALSE(c->norm_top_k);  // transformers' default
  EXPECT_TRUE(c->qk_norm);
  EXPECT_THAT(c->sparse, ElementsAre(true, true, true));
  // The name that transformers 5 writes.
  config.erase("num_experts");
  config["num_local_experts"] = 6;
  config["norm_topk_prob"] = true;
  config["num_hidden_layers"] = 6;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3, 0};
  const auto mixed = read(config);
  ASSERT_TRUE(mixed.has_value()) << mixed.error().text;
  EXPECT_EQ(mixed->n_experts, 6);
  EXPECT_TRUE(mixed->norm_top_k);
  // Layers 1, 3 and 5 by the step (counted from 1), without 3.
  EXPECT_THAT(mixed->sparse, ElementsAre(false, true, false, false, false, true));
  EXPECT_THAT(read(llama())->sparse, ElementsAre(false, false, false));
}

TEST(Config, experts_that_do_not_fit) {
  Json config = qwen3_moe();
  config["num_experts_per_tok"] = 9;
  expect_error(config, Code::kModel, AllOf(HasSubstr("9"), HasSubstr("8 experts")),
               "num_experts_per_tok");
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"})
    for (const Json& bad : {Json(0), Json(-1), Json(2.5), Json("8"), Json(int64_t{1} << 40)}) {
      config = qwen3_moe();
      config[field] = bad;
      expect_error(config, Code::kInput, AllOf(HasSubstr(field), HasSubstr(bad.dump())), field);
    }
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    config = qwen3_moe();
    config.erase(field);
    expect_error(config, Code::kInput, AllOf(HasSubstr(field), HasSubstr("missing")), field);
  }
  config = qwen3_moe();
  config["num_local_experts"] = 16;
  expect_error(config, Code::kModel, AllOf(HasSubstr("8"), HasSubstr("16")), "num_local_experts");
  config = qwen3_moe();
  config["decoder_sparse_step"] = 0;
  expect_error(config, Code::kInput, HasSubstr("is 0"), "decoder_sparse_step");
  config = qwen3_moe();
  config["mlp_only_layers"] = {0, 3};
  expect_error(config, Code::kInput, AllOf(HasSubstr("[0,3]"), HasSubstr("0 to 2")),
               "mlp_only_layers");
  config = qwen3_moe();
  config["use_sliding_window"] = true;
  expect_error(config, Code::kUnsupported, HasSubstr("engines differ"), "use_sliding_window");
  config["sliding_window"] = nullptr;
  EXPECT_TRUE(read(config).has_value());
}

}  // namespace
}  // namespace sextant
