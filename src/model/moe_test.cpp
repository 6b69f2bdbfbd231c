// Experts: the router's arithmetic by hand, what a NaN does, what binding accepts and refuses, and
// what a token reads. Whole models are in golden_test.cpp.
#include "model/blocks/moe.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

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
using ::testing::ElementsAre;
using testing::golden_dir;
using ::testing::HasSubstr;
using testing::run_logits;
using testing::TempDir;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Choice {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Choice choose(const std::vector<float>& logits, size_t top_k, bool normalize) {
  Choice choice{std::vector<int32_t>(top_k), std::vector<float>(top_k)};
  route(logits, normalize, choice.ids, choice.weights);
  return choice;
}

// exp(l) = 1, 4, 2, 1 with sum 8: shares 1/8, 1/2, 1/4, 1/8.
TEST(Router, softmax_over_all_experts_by_hand) {
  const std::vector<float> logits = {0.0F, std::log(4.0F), std::log(2.0F), 0.0F};
  const Choice c = choose(logits, 2, false);
  EXPECT_THAT(c.ids, ElementsAre(1, 2));
  EXPECT_FLOAT_EQ(c.weights[0], 0.5F);
  EXPECT_FLOAT_EQ(c.weights[1], 0.25F);
  const Choice n = choose(logits, 2, true);  // 1/2 and 1/4 of 3/4
  EXPECT_THAT(n.ids, ElementsAre(1, 2));
  EXPECT_FLOAT_EQ(n.weights[0], 2.0F / 3.0F);
  EXPECT_FLOAT_EQ(n.weights[1], 1.0F / 3.0F);
  EXPECT_THAT(choose(logits, 1, true).weights, ElementsAre(1.0F));
}

TEST(Router, of_equal_logits_the_lower_index) {
  EXPECT_THAT(choose({1, 2, 2, 1}, 3, false).ids, ElementsAre(1, 2, 0));
  EXPECT_THAT(choose({2, 3, 2, 3, 2}, 4, false).ids, ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(choose({0.0F, -0.0F, 0.0F}, 2, false).ids, ElementsAre(0, 1));
  const Choice all = choose({5, 5, 5, 5}, 4, false);
  EXPECT_THAT(all.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(all.weights, ElementsAre(0.25F, 0.25F, 0.25F, 0.25F));
}

// exp(300) is no float32; 1e-30 more of a logit of 1 is no other float32.
TEST(Router, large_logits_do_not_overflow) {
  const Choice c = choose({300, 300, -300}, 2, false);
  EXPECT_THAT(c.ids, ElementsAre(0, 1));
  EXPECT_THAT(c.weights, ElementsAre(0.5F, 0.5F));
  EXPECT_THAT(choose({-kInf, 0, -kInf}, 2, true).weights, ElementsAre(1.0F, 0.0F));
}

TEST(Router, logits_without_a_softmax_give_weights_of_nan) {
  for (const std::vector<float>& logits : {std::vector<float>{kNan, 1, 2, 3},
                                           {3, 2, 1, kNan},
                                           {1, kInf, 2, 3},
                                           {kNan, kNan, kNan, 1},
                                           {-kInf, -kInf, -kInf, -kInf}})
    for (const bool normalize : {false, true}) {
      const Choice c = choose(logits, 3, normalize);
      EXPECT_THAT(c.ids, ElementsAre(0, 1, 2));  // experts that exist, whatever the memory held
      for (const float weight : c.weights) EXPECT_TRUE(std::isnan(weight));
    }
}

class Experts : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Model>> load(const std::string& golden,
                                            const std::function<void(EditedCheckpoint&)>& change,
                                            std::vector<std::string> policies = {"f32"},
                                            const char* isa = "") {
    EditedCheckpoint checkpoint(golden);
    change(checkpoint);
    checkpoint.write(dir_.path());
    ModelOptions options;
    options.policies = std::move(policies);
    options.isa = isa;
    return Model::load(dir_.path(), options, pool_);
  }

  // The logits of the first sequence.
  std::vector<float> logits(const std::string& golden,
                            const std::function<void(EditedCheckpoint&)>& change) {
    const auto model = load(golden, change);
    EXPECT_TRUE(model.has_value()) << model.error().text;
    const auto ids = dump_ids(golden)[0];
    return model ? run_logits(**model, ids, {static_cast<int64_t>(ids.size())}, pool_)
                 : std::vector<float>();
  }

  void expect_refused(const std::function<void(EditedCheckpoint&)>& change,
                      const ::testing::Matcher<std::string>& text) {
    const auto model = load("qwen3-moe", change);
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, Code::kModel) << model.error().text;
    EXPECT_THAT(model.error().text, text);
  }

  ThreadPool pool_{2};
  TempDir dir_;
};

// Renames every tensor of an expert's linear; its scales come along.
void rename_experts(EditedCheckpoint& c, const std::map<std::string, std::string>& names) {
  decltype(c.tensors) renamed;
  for (auto& [name, tensor] : c.tensors) {
    std::string to = name;
    for (const auto& [from, into] : names) {
      const size_t at = to.find("." + from + ".");
      if (to.find(".experts.") != std::string::npos && at != std::string::npos)
        to.replace(at + 1, from.size(), into);
    }
    renamed[to] = std::move(tensor);
  }
  c.tensors = std::move(renamed);
}

TEST_F(Experts, w1_w3_w2_are_gate_up_down) {
  for (const char* golden : {"qwen3-moe", "modelopt-qwen3-moe"}) {
    const auto expected = logits(golden, [](EditedCheckpoint&) {});
    EXPECT_EQ(
        logits(golden,
               [](EditedCheckpoint& c) {
                 rename_experts(c, {{"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}});
               }),
        expected)
        << golden;
  }
}

TEST_F(Experts, a_fused_gate_up_is_its_halves) {
  const auto expected = logits("qwen3-moe", [](EditedCheckpoint&) {});
  const auto fuse = [](EditedCheckpoint& c) {
    for (int layer = 0; layer < 2; ++layer)
      for (int e = 0; e < 8; ++e) {
        const std::string expert = fmt::format("model.layers.{}.mlp.experts.{}.", layer, e);
        auto gate = c.tensors.extract(expert + "gate_proj.weight");
        auto up = c.tensors.extract(expert + "up_proj.weight");
        gate.mapped().bytes += up.mapped().bytes;
        gate.mapped().shape[0] += up.mapped().shape[0];
        c.tensors[expert + "gate_up_proj.weight"] = gate.mapped();
      }
  };
  EXPECT_EQ(logits("qwen3-moe", fuse), expected);
}

TEST_F(Experts, what_is_missing_is_named) {
  const std::string experts = "model.layers.1.mlp.experts.";
  expect_refused([&](auto& c) { c.tensors.erase(experts + "5.up_proj.weight"); },
                 AllOf(HasSubstr("1 parameter"), HasSubstr(experts + "5.up_proj.weight")));
  expect_refused(
      [&](auto& c) {
        for (const char* part : {"gate_proj", "up_proj", "down_proj"})
          c.tensors.erase(experts + "7." + part + ".weight");
      },
      AllOf(HasSubstr("3 parameters"), HasSubstr(experts + "7.down_proj.weight")));
  expect_refused([&](auto& c) { c.tensors.erase("model.layers.0.mlp.gate.weight"); },
                 HasSubstr("model.layers.0.mlp.gate.weight"));
  expect_refused(
      [&](auto& c) {
        rename_experts(c, {{"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}});
        c.tensors.erase(experts + "0.w3.weight");
      },
      AllOf(HasSubstr("1 parameter"), HasSubstr(experts + "0.w3.weight")));
}

TEST_F(Experts, what_the_config_does_not_count_is_left_over) {
  expect_refused(
      [](auto& c) { c.config["num_local_experts"] = 7; },
      AllOf(HasSubstr("[8, 64]"), HasSubstr("[7, 64]"), HasSubstr("experts.7.down_proj.weight")));
  expect_refused([](auto& c) { c.config["moe_intermediate_size"] = 48; },
                 AllOf(HasSubstr("[64, 64]"), HasSubstr("[48, 64]")));
  expect_refused([](auto& c) { c.config["mlp_only_layers"] = {1}; },
                 AllOf(HasSubstr("model.layers.1.mlp.gate_proj.weight"), HasSubstr("no place")));
}

// BF16 at 2 bytes; ref keeps no padding. Attention of a layer: q [128, 64], k and v [64, 64], o
// [64, 128]; router [8, 64]; an expert 3 x [64, 64]; head [320, 64].
TEST_F(Experts, a_token_reads_the_experts_it_uses) {
  const auto model = load(
      "qwen3-moe", [](EditedCheckpoint&) {}, {"a16"}, "ref");
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const int64_t attention = 2 * (128 * 64 + 2 * 64 * 64 + 64 * 128);
  const int64_t expert = 2 * 3 * 64 * 64;
  const int64_t others = 2 * (attention + 2 * 8 * 64) + 2 * 320 * 64;
  EXPECT_EQ((*model)->bytes_per_token(), others + 2 * 3 * expert);
  EXPECT_GE((*model)->weight_bytes(), others + 2 * 8 * expert);
}

// Every tap by name, layer and module, with how many rows it had.
class TapList : public Probe {
 public:
  void visit(const Tap& tap, Mat<const float> values) override {
    if (tap.layer != 0) return;
    if (tap.name == "router") {
      EXPECT_EQ(values.cols, 8);
    }
    if (!tap.rows.empty()) {
      EXPECT_EQ(static_cast<int64_t>(tap.rows.size()), values.rows);
      if (tap.name == "down") rows_down += values.rows;
    }
    if (seen_mlp_) names.emplace_back(tap.name);
    if (tap.name == "mlp_in") {
      seen_mlp_ = true;
      mlp_in.assign(values.data, values.data + values.rows * values.cols);
    }
    // An expert's inputs are the rows of mlp_in that chose it.
    if (tap.name != "input" || !tap.module.ends_with("gate_proj")) return;
    for (int64_t r = 0; r < values.rows; ++r)
      for (int64_t c = 0; c < values.cols; ++c) {
        const int64_t row = tap.rows[static_cast<size_t>(r)];
        EXPECT_EQ(values.at(r, c), mlp_in[static_cast<size_t>(row * values.cols + c)]);
      }
  }
  void visit_ids(const Tap& tap, Mat<const int32_t> ids) override {
    if (tap.layer != 0) return;
    names.emplace_back(tap.name);
    for (int64_t r = 0; r < ids.rows; ++r)
      for (const int32_t id : ids.row(r)) chosen.insert(id);
  }

  std::vector<std::string> names;  // behind mlp_in
  std::set<int32_t> chosen;
  std::vector<float> mlp_in;
  int64_t rows_down = 0;

 private:
  bool seen_mlp_ = false;
};

TEST_F(Experts, taps_in_order) {
  const auto model = load("qwen3-moe", [](EditedCheckpoint&) {});
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const auto ids = dump_ids("qwen3-moe")[0];
  TapList taps;
  run_logits(**model, ids, {static_cast<int64_t>(ids.size())}, pool_, &taps);
  std::vector<std::string> expected = {"input", "router", "router_ids", "router_weights"};
  for (size_t i = 0; i < taps.chosen.size(); ++i)
    for (const char* name : {"input", "input", "gate", "up", "mlp_act", "input", "down"})
      expected.emplace_back(name);
  expected.emplace_back("moe_out");
  expected.emplace_back("hidden");
  EXPECT_EQ(taps.names, expected);
  EXPECT_EQ(taps.rows_down, 3 * 48);
}

// One NaN in an expert: rows that use it are lost, all others keep their bits, and the probe names
// a row of the step, not of the expert's.
TEST_F(Experts, a_nan_in_one_expert_stays_with_its_rows) {
  const auto ids = dump_ids("qwen3-moe")[0];
  const auto n = static_cast<int64_t>(ids.size());
  const auto sound = load("qwen3-moe", [](EditedCheckpoint&) {});
  ASSERT_TRUE(sound.has_value());

  struct Rows : Probe {
    std::vector<float> out;
    std::set<int64_t> users;  // rows of expert 5 in layer 1
    void visit(const Tap& tap, Mat<const float> values) override {
      if (tap.layer == 1 && tap.name == "moe_out")
        out.assign(values.data, values.data + values.rows * values.cols);
    }
    void visit_ids(const Tap& tap, Mat<const int32_t> chosen) override {
      for (int64_t r = 0; r < chosen.rows; ++r)
        for (const int32_t id : chosen.row(r))
          if (tap.layer == 1 && id == 5) users.insert(r);
    }
  };
  Rows before;
  run_logits(**sound, ids, {n}, pool_, &before);
  ASSERT_FALSE(before.users.empty());
  ASSERT_LT(before.users.size(), ids.size());

  const std::string up = "model.layers.1.mlp.experts.5.up_proj";
  const auto broken = load("qwen3-moe", [&](EditedCheckpoint& c) {
    std::string& bytes = c.tensors[up + ".weight"].bytes;
    bytes[9 * 64 * 2] = '\xC0';  // row 9: BF16 NaN 0x7FC0
    bytes[9 * 64 * 2 + 1] = '\x7F';
  });
  ASSERT_TRUE(broken.has_value()) << broken.error().text;
  Rows after;
  run_logits(**broken, ids, {n}, pool_, &after);
  EXPECT_EQ(after.users, before.users);
  for (int64_t r = 0; r < n; ++r) {
    const auto at = static_cast<size_t>(r * 64);
    if (before.users.contains(r)) {
      EXPECT_TRUE(std::isnan(after.out[at])) << r;
    } else {
      EXPECT_EQ(after.out[at], before.out[at]) << r;
    }
  }
  FirstBadTap bad;
  run_logits(**broken, ids, {n}, pool_, &bad);
  ASSERT_TRUE(bad.found().has_value());
  EXPECT_EQ(bad.found()->module, up);
  EXPECT_EQ(bad.found()->step_row, *before.users.begin());
  EXPECT_EQ(bad.found()->col, 9);
}

TEST_F(Experts, a_nan_in_a_router_is_found_there) {
  const auto model = load("qwen3-moe", [](EditedCheckpoint& c) {
    std::string& bytes = c.tensors["model.layers.0.mlp.gate.weight"].bytes;
    bytes[2 * 64 * 2] = '\xC0';
    bytes[2 * 64 * 2 + 1] = '\x7F';
  });
  ASSERT_TRUE(model.has_value()) << model.error().text;
  FirstBadTap bad;
  const auto ids = dump_ids("qwen3-moe")[0];
  const auto logits = run_logits(**model, ids, {48}, pool_, &bad);
  ASSERT_TRUE(bad.found().has_value());
  EXPECT_EQ(bad.found()->name, "router");
  EXPECT_EQ(bad.found()->module, "model.layers.0.mlp.gate");
  EXPECT_EQ(bad.found()->col, 2);
  EXPECT_TRUE(std::isnan(logits.back()));
}

// The router's logits, and so its choice, are the same with and without BF16 activations in layer
// 0's MLP; a rule with a pattern rounds them.
TEST_F(Experts, routers_stay_float32_unless_a_pattern_names_them) {
  struct Logits : Probe {
    std::vector<float> x, y;
    void visit(const Tap& tap, Mat<const float> values) override {
      if (tap.layer != 0) return;
      if (tap.name == "mlp_in") x.assign(values.data, values.data + values.rows * values.cols);
      if (tap.name == "router") y.assign(values.data, values.data + values.rows * values.cols);
    }
  };
  const auto run = [&](std::vector<std::string> policies) {
    const auto model = load(
        "qwen3-moe", [](EditedCheckpoint&) {}, std::move(policies));
    EXPECT_TRUE(model.has_value()) << model.error().text;
    Logits logits;
    if (model) run_logits(**model, dump_ids("qwen3-moe")[0], {48}, pool_, &logits);
    return logits;
  };
  // The same attention in all three, so the router's input is the same.
  const std::string attention = "*.self_attn.*=f32";
  const Logits f32 = run({"f32"});
  const Logits a16 = run({"a16", attention});
  const Logits named = run({"a16", attention, "*.mlp.gate=a16"});
  EXPECT_EQ(a16.x, f32.x);
  EXPECT_EQ(a16.y, f32.y);
  EXPECT_EQ(named.x, f32.x);
  EXPECT_NE(named.y, f32.y);
}

}  // namespace
}  // namespace sextant
