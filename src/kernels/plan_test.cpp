// Plans for shapes of real models on machines of several sizes, and what every plan must satisfy.
// measure.h's functions: that they give sensible numbers at all.
#include "kernels/plan.h"

#include <gtest/gtest.h>

#include "base/checked.h"
#include "kernels/measure.h"
#include "kernels/test_data.h"

namespace sextant {
namespace {

TEST(Plan, OneRowReadsCodesInRanges) {
  const LinearPlan plan = plan_linear({1, 4096, 128, 0}, {}, 2);
  EXPECT_EQ(plan.path, LinearPath::kDecode);
  EXPECT_EQ(plan.token_tile, 1);
  EXPECT_EQ(plan.n_tasks, 8);
  EXPECT_EQ(to_string(plan), "decode: 1 rows a pass, 8 ranges of groups");
}

TEST(Plan, SmallBatchesAreCutEvenly) {
  EXPECT_EQ(plan_linear({5, 4096, 128, 0}, {}, 2).token_tile, 3);  // 3 and 2, not 4 and 1
  EXPECT_EQ(plan_linear({6, 4096, 128, 0}, {}, 2).token_tile, 3);
  EXPECT_EQ(plan_linear({4, 4096, 128, 0}, {}, 2).token_tile, 4);
  EXPECT_EQ(plan_linear({8, 4096, 128, 0}, {}, 2).path, LinearPath::kSmall);
}

TEST(Plan, PrefillExpandsPanelsThatFitTheL2) {
  const LinearPlan plan = plan_linear({512, 14336, 128, 16}, {}, 2);
  EXPECT_EQ(plan.path, LinearPath::kPanel);
  EXPECT_EQ(plan.k_chunk, 1024);  // 32 rows of float32 in 128 KiB
  EXPECT_EQ(plan.token_chunk % plan.token_tile, 0);
  EXPECT_EQ(plan.token_split, 1);  // 128 groups feed two threads
  EXPECT_EQ(plan.n_tasks, 128);
}

TEST(Plan, FewGroupsAreSplitOverTokens) {
  const LinearPlan plan = plan_linear({512, 576, 6, 16}, {}, 8);
  EXPECT_GT(plan.token_split, 1);
  EXPECT_GE(plan.n_tasks, 2 * 8);
}

// Panels end between scale blocks; every row and column is covered; nothing is empty.
TEST(Plan, InvariantsOverManyShapes) {
  for (const int n_threads : {1, 2, 5, 16, 96}) {
    for (const int64_t m : {1, 2, 5, 8, 9, 31, 192, 193, 5000}) {
      for (const int64_t k : {0, 1, 16, 576, 4096, 14336}) {
        for (const int64_t groups : {1, 2, 18, 400}) {
          for (const int64_t block : {0, 16, 20, 128, 2048}) {
            const LinearPlan plan = plan_linear({m, k, groups, block}, {}, n_threads);
            const std::string text = to_string(plan);
            ASSERT_GE(plan.token_tile, 1) << text;
            ASSERT_GE(plan.n_tasks, 1) << text;
            ASSERT_LE(plan.token_split, std::max<int64_t>(1, plan.token_chunk)) << text;
            if (plan.path != LinearPath::kPanel) {
              ASSERT_LE(plan.token_tile, 4) << text;
              ASSERT_LE(plan.n_tasks, groups) << text;
              ASSERT_GE(plan.token_tile * ceil_div(m, plan.token_tile), m) << text;
              continue;
            }
            ASSERT_GT(m, 8) << text;
            ASSERT_GE(plan.k_chunk, 1) << text;
            if (block != 0 && plan.k_chunk < k) {
              ASSERT_EQ(plan.k_chunk % block, 0) << text;
            }
            ASSERT_EQ(plan.n_tasks, groups * plan.token_split) << text;
          }
        }
      }
    }
  }
}

TEST(Plan, AttentionSharesKeysUnlessThreadsIdle) {
  EXPECT_EQ(plan_attention({1, 32, 8}, 2).heads_per_task, 4);  // 8 tasks for 2 threads
  EXPECT_EQ(plan_attention({1, 9, 3}, 2).heads_per_task, 1);   // 3 tasks would leave one idle
  EXPECT_EQ(plan_attention({1, 14, 2}, 2).heads_per_task, 7);  // 2 tasks, one each
  const AttentionPlan prefill = plan_attention({512, 32, 8}, 2);
  EXPECT_EQ(prefill.rows_per_task, 8);
  EXPECT_EQ(prefill.n_tasks, 8 * 64);
  EXPECT_EQ(to_string(prefill), "4 heads and 8 rows a task, 512 tasks");
  EXPECT_EQ(plan_attention({0, 4, 4}, 2).n_tasks, 0);
}

TEST(Plan, CheapRowsAreNotWorthAFork) {
  EXPECT_EQ(rows_per_task(1, 4096, 8), 1);
  EXPECT_EQ(rows_per_task(3, 1000, 8), 3);
  EXPECT_EQ(rows_per_task(512, 4096, 8), 64);
  EXPECT_EQ(rows_per_task(0, 4096, 8), 1);
}

TEST(Measure, GivesPositiveRates) {
  ThreadPool pool(1);
  EXPECT_GT(measure_read_bytes_per_s(pool, 1 << 20), 1e6);
  EXPECT_GT(measure_flops_per_s(pool), 1e6);
  const auto unknown = bench_machine({.isa = "sse9", .threads = {}});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Code::kUnsupported);
  const auto report =
      bench_machine({.isa = "ref", .threads = {1}, .read_bytes = 1 << 20, .kernels = false});
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->isa, "ref");
  ASSERT_EQ(report->threads.size(), 1U);
  EXPECT_GT(report->threads[0].read_bytes_per_s, 1e6);
}

}  // namespace
}  // namespace sextant
