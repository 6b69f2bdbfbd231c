// The report over a golden model, its dump read back by compare.h, and alarms by hand.
#include "forge/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "forge/compare.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::golden_dir;
using ::testing::HasSubstr;

struct Loaded {
  std::unique_ptr<Checkpoint> checkpoint;
  std::shared_ptr<const Model> model;
};

class TraceTest : public ::testing::Test {
 protected:
  Loaded load(const std::filesystem::path& path, const std::vector<std::string>& policies = {}) {
    Loaded out;
    out.checkpoint = std::move(*Checkpoint::open(path));
    ModelOptions options;
    options.policies = policies;
    auto model = Model::load(path, options, pool_);
    EXPECT_TRUE(model.has_value()) << model.error().text;
    out.model = *model;
    return out;
  }

  // A dump of ours, then the comparison of the same model with it.
  DumpReport round_trip(const std::string& name, const std::vector<std::string>& policies,
                        int64_t chunk, const std::string& isa = "") {
    const Loaded loaded = load(golden_dir(name), policies);
    const std::vector<int32_t> ids = testing::dump_ids(name)[1];
    const std::filesystem::path at = dir_.path() / fmt::format("dump{}", n_dumps_++);
    auto writer = DumpWriter::create(at, *loaded.model, policies, ids);
    EXPECT_TRUE(writer.has_value()) << writer.error().text;
    TraceOptions options;
    options.chunk = chunk;
    options.dump = writer->get();
    const auto report = trace(*loaded.model, *loaded.checkpoint, ids, options, pool_);
    EXPECT_TRUE(report.has_value()) << report.error().text;
    EXPECT_FALSE(report->first_bad);
    EXPECT_FALSE(std::filesystem::exists(at));
    const Status committed = (*writer)->commit("the test");
    EXPECT_TRUE(committed.has_value()) << committed.error().text;
    DumpOptions compare;
    compare.model.isa = isa;
    auto compared =
        compare_dump(std::move(*Checkpoint::open(golden_dir(name))), at, compare, pool_);
    EXPECT_TRUE(compared.has_value()) << compared.error().text;
    return *compared;
  }

  ThreadPool pool_{2};
  testing::TempDir dir_;
  int n_dumps_ = 0;
};

TEST_F(TraceTest, CompareReadsADumpOfOurs) {
  for (const std::string name : {"llama3", "modelopt-llama3-separate", "llama-rope-dynamic"})
    for (const std::vector<std::string>& policies :
         {std::vector<std::string>{"f32"}, {}, {"f32", "*.mlp.*=a16,weights=bf16"}}) {
      const DumpReport report = round_trip(name, policies, 7);
      EXPECT_TRUE(report.ok()) << name;
      EXPECT_TRUE(report.unknown.empty());
      EXPECT_EQ(report.n_positions, 48);
      // hidden.0 to hidden.L, logits.
      const Loaded loaded = load(golden_dir(name));
      EXPECT_EQ(static_cast<int64_t>(report.rows.size()), loaded.model->config().n_layers + 2);
      EXPECT_EQ(report.applied, policies.empty() ? std::vector<std::string>{"a16"} : policies);
      for (const DumpRow& row : report.rows) EXPECT_EQ(row.max_abs_diff, 0) << row.tensor;
    }
}

TEST_F(TraceTest, OtherKernelsAreWithinTheBoundsOfADump) {
  for (const std::string name : {"llama3", "qwen3", "modelopt-llama3-shared"})
    for (const std::vector<std::string>& policies : {std::vector<std::string>{"f32"}, {}}) {
      const DumpReport report = round_trip(name, policies, 48, "ref");
      for (const DumpRow& row : report.rows)
        EXPECT_TRUE(row.ok) << name << " " << row.tensor << " " << row.max_abs_diff << " of "
                            << row.bound;
    }
}

TEST_F(TraceTest, WhatCannotBeRun) {
  const Loaded loaded = load(golden_dir("llama3"));
  const auto run = [&](const std::vector<int32_t>& ids) {
    return trace(*loaded.model, *loaded.checkpoint, ids, {}, pool_).error();
  };
  EXPECT_EQ(run({}).code, Code::kUsage);
  EXPECT_EQ(run({1, 2, 100000}).code, Code::kInput);
  EXPECT_THAT(run({1, 2, 100000}).text, HasSubstr("token 2 of the prompt is 100000"));
  EXPECT_EQ(run(std::vector<int32_t>(100000, 1)).code, Code::kInput);
  EXPECT_EQ(
      DumpWriter::create(dir_.path(), *loaded.model, {}, std::vector<int32_t>{1}).error().code,
      Code::kUsage);
}

TEST(TraceAlarms, LimitsOfTheTable) {
  TracedTap tap;
  tap.name = "input";
  tap.module = "m";
  tap.input = InputUse{1.0F, 2688.0F, true, {}};
  tap.input->use.n_elements = 16000;
  tap.input->use.n_blocks = 1000;
  const auto at = [&](double ratio, int64_t n_clipped = 0, int64_t n_zero = 0) {
    tap.statistics.amax = static_cast<float>(2688.0 * ratio);
    tap.input->use.n_clipped = n_clipped;
    tap.input->use.n_zero_blocks = n_zero;
    std::string out;
    for (const TraceAlarm& alarm : alarms_of({&tap, 1}))
      out += alarm.quantity + (alarm.severity == Severity::kError ? "!" : "") + " ";
    return out;
  };
  EXPECT_EQ(at(1.0), "");
  EXPECT_EQ(at(1.05), "");
  EXPECT_EQ(at(1.06), "ratio ");
  EXPECT_EQ(at(1.5), "ratio ");
  EXPECT_EQ(at(1.6), "ratio! ");
  EXPECT_EQ(at(0x1p-12), "");
  EXPECT_EQ(at(0x1p-13), "ratio ");
  EXPECT_EQ(at(1.0, 16), "");
  EXPECT_EQ(at(1.0, 17), "clipped ");
  EXPECT_EQ(at(1.0, 0, 1), "");
  EXPECT_EQ(at(1.0, 0, 2), "zero-blocks ");
}

}  // namespace
}  // namespace sextant
