// Checkpoints with something wrong: each is refused by name, nothing is guessed. Made from golden
// ones by one change.
#include "model/bind.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/first_bad_tap.h"
#include "model/model.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using ::testing::AllOf;
using testing::dump_ids;
using testing::EditedCheckpoint;
using ::testing::HasSubstr;
using testing::run_logits;
using testing::TempDir;
using testing::TestTensor;

constexpr const char* kUp = "model.layers.1.mlp.up_proj";

class Bind : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Model>> load(const std::string& golden,
                                            const std::function<void(EditedCheckpoint&)>& change,
                                            const ModelOptions& options = {},
                                            std::vector<Allowance> allow = {}) {
    EditedCheckpoint edited(golden);
    change(edited);
    edited.write(dir_.path());
    SX_ASSIGN(auto checkpoint,
              Checkpoint::open(dir_.path(), {.limits = {}, .allow = std::move(allow)}));
    return Model::load(std::move(checkpoint), options, pool_);
  }

  void expect_refused(const std::string& golden,
                      const std::function<void(EditedCheckpoint&)>& change, Code code,
                      const ::testing::Matcher<std::string>& text,
                      const ModelOptions& options = {}) {
    const auto model = load(golden, change, options);
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, code) << model.error().text;
    EXPECT_THAT(model.error().text, text);
  }

  ThreadPool pool_{2};
  TempDir dir_;
};

TEST_F(Bind, an_unchanged_copy_loads) {
  const auto model = load("modelopt-llama3-shared", [](EditedCheckpoint&) {});
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_GT((*model)->weight_bytes(), 0);
  EXPECT_LE((*model)->bytes_per_token(), (*model)->weight_bytes());
}

TEST_F(Bind, a_missing_linear) {
  expect_refused(
      "llama2", [](auto& c) { c.tensors.erase(std::string(kUp) + ".weight"); }, Code::kModel,
      AllOf(HasSubstr(kUp), HasSubstr("not in the checkpoint")));
}

TEST_F(Bind, a_missing_norm_and_a_missing_bias) {
  expect_refused(
      "llama2", [](auto& c) { c.tensors.erase("model.norm.weight"); }, Code::kModel,
      HasSubstr("model.norm.weight"));
  const auto drop = [](EditedCheckpoint& c) {
    c.tensors.erase("model.layers.0.self_attn.k_proj.bias");
  };
  expect_refused("qwen2", drop, Code::kModel, HasSubstr("model.layers.0.self_attn.k_proj.bias"));
  // A bias that is not there counts as zero.
  EXPECT_TRUE(load("qwen2", drop, {}, {{"C15", "*.k_proj.bias"}}).has_value());
}

TEST_F(Bind, a_missing_scale_is_named_as_such) {
  expect_refused(
      "modelopt-llama3-shared",
      [](auto& c) { c.tensors.erase(std::string(kUp) + ".weight_scale_2"); }, Code::kModel,
      AllOf(HasSubstr(kUp), HasSubstr("weight_scale_2")));
}

TEST_F(Bind, a_wrong_shape_shows_both) {
  expect_refused(
      "llama2", [](auto& c) { c.config["intermediate_size"] = 176; }, Code::kModel,
      AllOf(HasSubstr("[160, 64]"), HasSubstr("[176, 64]")));
  expect_refused(
      "llama2", [](auto& c) { c.config["vocab_size"] = 300; }, Code::kModel,
      AllOf(HasSubstr("[320, 64]"), HasSubstr("[300, 64]")));
  expect_refused(
      "llama2",
      [](auto& c) {
        c.tensors["model.norm.weight"] = testing::bf16_tensor({63}, std::vector<float>(63, 1.0F));
      },
      Code::kModel, AllOf(HasSubstr("[63]"), HasSubstr("[64]")));
  // Layers that the config does not count are left over.
  expect_refused(
      "llama2", [](auto& c) { c.config["num_hidden_layers"] = 2; }, Code::kModel,
      AllOf(HasSubstr("model.layers.2."), HasSubstr("no place")));
  expect_refused(
      "llama2", [](auto& c) { c.config["num_hidden_layers"] = 4; }, Code::kModel,
      HasSubstr("model.layers.3."));
}

TEST_F(Bind, a_tensor_that_nobody_takes) {
  const auto add = [](EditedCheckpoint& c) {
    c.tensors["model.layers.0.mlp.router.weight"] =
        testing::bf16_tensor({2, 64}, std::vector<float>(128, 0.5F));
  };
  expect_refused("llama2", add, Code::kModel,
                 AllOf(HasSubstr("model.layers.0.mlp.router.weight"), HasSubstr("no place")));
  const auto model = load("llama2", add, {}, {{"C16", "*.router.weight"}});
  ASSERT_TRUE(model.has_value()) << model.error().text;
  bool noted = false;
  for (const Finding& f : (*model)->findings())
    noted = noted || f.tensor == "model.layers.0.mlp.router.weight";
  EXPECT_TRUE(noted);
}

TEST_F(Bind, biases_that_the_architecture_has_no_place_for) {
  expect_refused(
      "llama-rope-linear", [](auto& c) { c.config["mlp_bias"] = false; }, Code::kModel,
      HasSubstr("mlp.down_proj.bias"));
}

TEST_F(Bind, harmless_tensors_are_noted) {
  const auto model = load("modelopt-llama3-shared", [](EditedCheckpoint& c) {
    c.tensors["model.layers.0.mlp.down_proj.weight_quantizer._double_scale"] = {
        DType::kF32, {}, std::string(4, '\0')};
    c.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
        DType::kF32, {8}, std::string(32, '\0')};
  });
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_FALSE((*model)->findings().empty());
}

TEST_F(Bind, tied_embeddings_and_a_stored_head) {
  // The same bytes: an exporter's copy.
  const auto same = load("llama3", [](EditedCheckpoint& c) {
    c.tensors["lm_head.weight"] = c.tensors["model.embed_tokens.weight"];
  });
  EXPECT_TRUE(same.has_value()) << same.error().text;
  const auto other = [](EditedCheckpoint& c) {
    c.tensors["lm_head.weight"] = c.tensors["model.embed_tokens.weight"];
    c.tensors["lm_head.weight"].bytes[0] ^= 1;
  };
  expect_refused("llama3", other, Code::kModel,
                 AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("lm_head.weight")));
  EXPECT_TRUE(load("llama3", other, {}, {{"C16", "lm_head.weight"}}).has_value());
  // Untied, and no head.
  expect_refused(
      "llama3", [](auto& c) { c.config["tie_word_embeddings"] = false; }, Code::kModel,
      HasSubstr("lm_head.weight"));
}

// Names of one fused linear: the same numbers as from its parts.
TEST_F(Bind, fused_linears_are_their_parts) {
  const auto ids = dump_ids("llama2")[0];
  const auto parts = load("llama2", [](EditedCheckpoint&) {});
  ASSERT_TRUE(parts.has_value());
  const auto expected = run_logits(**parts, ids, {48}, pool_);
  const auto fused = load("llama2", [](EditedCheckpoint& c) {
    const auto join = [&](const std::string& prefix, std::vector<const char*> from,
                          const char* to) {
      TestTensor all;
      for (const char* name : from) {
        const TestTensor part = c.tensors[prefix + name + ".weight"];
        c.tensors.erase(prefix + name + ".weight");
        const int64_t rows = (all.shape.empty() ? 0 : all.shape[0]) + part.shape[0];
        all.dtype = part.dtype;
        all.shape = {rows, part.shape[1]};
        all.bytes += part.bytes;
      }
      c.tensors[prefix + to + ".weight"] = all;
    };
    for (int i = 0; i < 3; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      join(layer + "self_attn.", {"q_proj", "k_proj", "v_proj"}, "qkv_proj");
      join(layer + "mlp.", {"gate_proj", "up_proj"}, "gate_up_proj");
    }
  });
  ASSERT_TRUE(fused.has_value()) << fused.error().text;
  EXPECT_EQ(run_logits(**fused, ids, {48}, pool_), expected);
}

TEST_F(Bind, policies_are_checked_after_binding) {
  ModelOptions options;
  options.policies = {"f32", "model.layers.7.*=a16"};
  expect_refused(
      "llama2", [](auto&) {}, Code::kUsage, HasSubstr("model.layers.7.*"), options);
  options.policies = {"a4:warmup"};
  expect_refused(
      "modelopt-llama3-shared", [](auto&) {}, Code::kUsage, HasSubstr("--input-scales"), options);
  options.policies = {};
  options.isa = "sse9";
  expect_refused(
      "llama2", [](auto&) {}, Code::kUnsupported, HasSubstr("sse9"), options);
  options.isa = "";
  options.max_context = 129;
  expect_refused(
      "llama2", [](auto&) {}, Code::kUsage, AllOf(HasSubstr("129"), HasSubstr("128")), options);
}

// A NaN in one weight shows first at the output of that linear (case C086 in small).
TEST_F(Bind, the_first_bad_tap) {
  ModelOptions options;
  options.policies = {"f32"};
  const auto model = load(
      "llama2",
      [](EditedCheckpoint& c) {
        std::string& bytes = c.tensors[std::string(kUp) + ".weight"].bytes;
        bytes[3 * 64 * 2] = '\xC0';  // row 3: BF16 NaN 0x7FC0
        bytes[3 * 64 * 2 + 1] = '\x7F';
      },
      options);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const auto ids = dump_ids("llama2")[0];
  FirstBadTap bad;
  run_logits(**model, ids, {48}, pool_, &bad);
  ASSERT_TRUE(bad.found().has_value());
  EXPECT_EQ(bad.found()->name, "up");
  EXPECT_EQ(bad.found()->layer, 1);
  EXPECT_EQ(bad.found()->module, kUp);
  EXPECT_EQ(bad.found()->row, 0);
  EXPECT_EQ(bad.found()->col, 3);
  EXPECT_THAT(bad.describe(), AllOf(HasSubstr("layer 1"), HasSubstr(kUp), HasSubstr("nan")));
}

}  // namespace
}  // namespace sextant
