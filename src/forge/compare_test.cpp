// compare_dump over every golden directory of a model: one prefill, token by token, in chunks; and
// what it says about dumps and models that do not fit.
#include "forge/compare.h"

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/testing/golden.h"

namespace sextant {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::EditedCheckpoint;
using ::testing::ElementsAre;
using testing::golden_dir;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

Result<DumpReport> compare_path(const std::filesystem::path& model,
                                const std::filesystem::path& dump, const DumpOptions& options,
                                ThreadPool& pool) {
  SX_ASSIGN(auto checkpoint, Checkpoint::open(model, {.limits = {}, .allow = dump_allowances()}));
  return compare_dump(std::move(checkpoint), dump, options, pool);
}

DumpReport compare(const std::string& directory, const DumpOptions& options) {
  ThreadPool pool(2);
  const auto report = compare_path(golden_dir(directory), golden_dir(directory), options, pool);
  EXPECT_TRUE(report.has_value()) << directory << ": " << report.error().text;
  return report ? *report : DumpReport{};
}

void expect_ok(const DumpReport& report, const std::string& what) {
  EXPECT_FALSE(report.rows.empty()) << what;
  for (const DumpRow& row : report.rows)
    EXPECT_TRUE(row.ok) << what << ", " << row.tensor << ": " << row.max_abs_diff << " above "
                        << row.bound;
}

bool has_row(const DumpReport& report, const std::string& tensor) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [&](const DumpRow& row) { return row.tensor == tensor; });
}

class CompareDump : public ::testing::TestWithParam<std::string> {};

TEST_P(CompareDump, one_prefill) {
  const DumpReport report = compare(GetParam(), {});
  expect_ok(report, "one prefill");
  EXPECT_THAT(report.applied, ElementsAre("f32"));
  EXPECT_THAT(report.unknown, IsEmpty());
  for (const char* tensor : {"hidden.0", "hidden.1", "hidden.2", "logits", "greedy_ids"})
    EXPECT_TRUE(has_row(report, tensor)) << tensor;
  for (const DumpRow& row : report.rows)
    if (row.tensor == "hidden.0") {
      EXPECT_EQ(row.max_abs_diff, 0.0);  // exact
    }
}

TEST_P(CompareDump, token_by_token) {
  DumpOptions options;
  options.decode_from = 0;
  const DumpReport report = compare(GetParam(), options);
  expect_ok(report, "token by token");
  const bool dynamic = GetParam() == "llama-rope-dynamic";
  EXPECT_EQ(has_row(report, "logits"), !dynamic);
  EXPECT_EQ(has_row(report, "logits_cached"), dynamic);
}

TEST_P(CompareDump, in_chunks_with_every_table) {
  if (GetParam() == "llama-rope-dynamic") return;  // other chunkings are held to nothing, see below
  for (const Ops* ops : available_ops()) {
    DumpOptions options;
    options.model.isa = ops->name;
    options.prefill_chunk = 7;
    options.decode_from = 40;
    const DumpReport report = compare(GetParam(), options);
    EXPECT_EQ(report.isa, ops->name);
    expect_ok(report, ops->name);
  }
}

// Router tensors of every layer with experts, and of no other.
TEST(CompareRouters, ids_are_equal_and_weights_bounded) {
  const DumpReport all = compare("qwen3-moe", {});
  expect_ok(all, "qwen3-moe");
  const DumpReport mixed = compare("qwen3-moe-mixed", {});
  for (const char* tensor : {"router.0.ids", "router.0.weights", "router.1.ids"})
    EXPECT_TRUE(has_row(all, tensor)) << tensor;
  for (const DumpRow& row : all.rows) {
    if (!row.tensor.starts_with("router.")) continue;
    EXPECT_EQ(row.n_elements, 2 * 48 * 3) << row.tensor;
    if (row.tensor.ends_with(".weights")) {
      EXPECT_EQ(row.bound, 4.35e-05);
    }
  }
  EXPECT_TRUE(has_row(mixed, "router.3.ids"));
  EXPECT_FALSE(has_row(mixed, "router.1.ids"));
}

// Two rows of the router swapped: its experts are chosen in each other's place.
TEST(CompareRouters, another_choice_is_counted) {
  TempDir dir;
  EditedCheckpoint c("qwen3-moe");
  std::string& bytes = c.tensors["model.layers.1.mlp.gate.weight"].bytes;
  std::swap_ranges(bytes.begin(), bytes.begin() + 128, bytes.begin() + 128);
  c.write(dir.path());
  ThreadPool pool(2);
  const auto report = compare_path(dir.path(), golden_dir("qwen3-moe"), {}, pool);
  ASSERT_TRUE(report.has_value()) << report.error().text;
  const std::vector<int32_t> ids = testing::dump_router_ids("qwen3-moe", 1);
  const auto n_concerned = std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id < 2; });
  for (const DumpRow& row : report->rows) {
    if (row.tensor == "router.0.ids") {
      EXPECT_TRUE(row.ok);
    }
    if (row.tensor == "router.1.ids") {
      EXPECT_FALSE(row.ok);
      EXPECT_EQ(row.first_over.size(), 2U);
      EXPECT_EQ(row.max_abs_diff, static_cast<double>(n_concerned));
    }
    if (row.tensor == "router.1.weights") {
      EXPECT_TRUE(row.ok);  // the same weights, of other experts
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CompareDump, ::testing::ValuesIn(testing::model_directories()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// W4A4 of another framework: block scales equal, codes equal but for ties, products within their
// bounds, linear by linear, and the logits of the whole model; with the table of every processor.
class CompareW4A4 : public ::testing::TestWithParam<const char*> {};

TEST_P(CompareW4A4, scales_codes_products_and_logits) {
  for (const Ops* ops : available_ops()) {
    DumpOptions options;
    options.name = "dump_w4a4";
    options.model.isa = ops->name;
    const DumpReport report = compare(GetParam(), options);
    expect_ok(report, std::string(GetParam()) + " " + ops->name);
    EXPECT_THAT(report.applied, ElementsAre("f32", "a8:fp8", "a4:static,quantizer=A"));
    EXPECT_THAT(report.unknown, IsEmpty());
    EXPECT_TRUE(has_row(report, "logits"));
    const auto n_of = [&](const char* kind) {
      return std::count_if(report.rows.begin(), report.rows.end(),
                           [&](const DumpRow& row) { return row.tensor.starts_with(kind); });
    };
    EXPECT_GE(n_of("scales."), 6);
    EXPECT_GE(n_of("codes."), n_of("scales."));
    EXPECT_EQ(n_of("y."), n_of("codes."));
  }
}

// The right bytes under the wrong policy are noticed: quantizer B and C agree with A but for rare
// ties, a headroom or another scale do not.
TEST(CompareW4A4Policy, another_scale_is_noticed) {
  DumpOptions options;
  options.name = "dump_w4a4";
  for (const char* policy : {"a4:static*2", "a4:one"}) {
    options.model.policies = {"f32", policy};
    const DumpReport report = compare("modelopt-llama3-separate", options);
    EXPECT_FALSE(report.ok()) << policy;
    for (const DumpRow& row : report.rows)
      if (row.tensor.starts_with("scales.")) {
        EXPECT_FALSE(row.ok) << policy << " " << row.tensor;
        EXPECT_GT(row.max_abs_diff, 0.5) << row.tensor;
        EXPECT_EQ(row.first_over, (std::vector<int64_t>{0, 0})) << row.tensor;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CompareW4A4,
                         ::testing::Values("modelopt-llama3-separate", "modelopt-llama3-shared",
                                           "ct-llama3-nvfp4", "modelopt-qwen3-moe",
                                           "modelopt-llama-mixed", "modelopt-qwen2-mlp"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(CompareDumpErrors, dynamic_ntk_in_chunks_has_no_right_answer) {
  ThreadPool pool(2);
  DumpOptions options;
  options.prefill_chunk = 20;
  const auto dir = golden_dir("llama-rope-dynamic");
  const auto report = compare_path(dir, dir, options, pool);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Code::kInput);
  EXPECT_THAT(report.error().text, HasSubstr("none of its tensors can be compared this way"));
}

TEST(CompareDumpErrors, a_changed_weight_is_over_the_bound) {
  TempDir dir;
  EditedCheckpoint c("llama2");
  std::string& bytes = c.tensors["model.layers.2.mlp.down_proj.weight"].bytes;
  bytes[2 * 160 * 5 + 1] ^= 0x40;  // one weight of row 5, far off
  c.write(dir.path());
  ThreadPool pool(2);
  const auto report = compare_path(dir.path(), golden_dir("llama2"), {}, pool);
  ASSERT_TRUE(report.has_value()) << report.error().text;
  EXPECT_FALSE(report->ok());
  for (const DumpRow& row : report->rows) {
    if (row.tensor == "hidden.2") {
      EXPECT_TRUE(row.ok);
    }
    if (row.tensor == "hidden.3") {
      EXPECT_FALSE(row.ok);
      EXPECT_THAT(row.first_over, ElementsAre(0, 0, 5));
    }
  }
}

TEST(CompareDumpErrors, what_does_not_fit) {
  ThreadPool pool(1);
  const auto error = [&](const std::filesystem::path& model, const std::filesystem::path& dump,
                         const DumpOptions& options) {
    const auto report = compare_path(model, dump, options, pool);
    EXPECT_FALSE(report.has_value());
    return report ? Error{} : report.error();
  };
  // Another model's dump: the shapes do not fit.
  Error e = error(golden_dir("llama2"), golden_dir("qwen3"), {});
  EXPECT_EQ(e.code, Code::kInput);
  // Routers where this model has no experts.
  TempDir dense;
  EditedCheckpoint sparse("qwen3-moe");
  sparse.config["mlp_only_layers"] = {0};
  for (auto tensor = sparse.tensors.begin(); tensor != sparse.tensors.end();)
    tensor = tensor->first.starts_with("model.layers.0.mlp.") ? sparse.tensors.erase(tensor)
                                                              : std::next(tensor);
  for (const char* part : {"gate_proj", "up_proj"})
    sparse.tensors[std::string("model.layers.0.mlp.") + part + ".weight"] =
        testing::bf16_tensor({128, 64}, std::vector<float>(128 * 64, 0.01F));
  sparse.tensors["model.layers.0.mlp.down_proj.weight"] =
      testing::bf16_tensor({64, 128}, std::vector<float>(64 * 128, 0.01F));
  sparse.write(dense.path());
  e = error(dense.path(), golden_dir("qwen3-moe"), {});
  EXPECT_EQ(e.code, Code::kInput);
  EXPECT_THAT(e.text, AllOf(HasSubstr("router.0."), HasSubstr("layer 0"), HasSubstr("no experts")));
  // No such dump.
  DumpOptions missing;
  missing.name = "nothing";
  e = error(golden_dir("llama2"), golden_dir("llama2"), missing);
  EXPECT_EQ(e.code, Code::kInput);
  EXPECT_THAT(e.text, HasSubstr("nothing.safetensors"));
  // Bounds are asked for, never assumed.
  TempDir dir;
  std::filesystem::copy_file(golden_dir("llama2") / "dump.safetensors",
                             dir.path() / "dump.safetensors");
  std::ofstream(dir.path() / "dump.json") << R"({"policy": "f32", "bounds": {"logits": 0.001}})";
  e = error(golden_dir("llama2"), dir.path(), {});
  EXPECT_EQ(e.code, Code::kInput);
  EXPECT_THAT(e.text, AllOf(HasSubstr("bounds"), HasSubstr("hidden.0")));
}

}  // namespace
}  // namespace sextant
