#include "engine/memory_plan.h"

#include <gtest/gtest.h>

namespace sextant {
namespace {

// 2 layers * keys and values * 16 tokens * 3 heads * 64 * 2 bytes = 24,576 bytes a page.
const KvLayout kLayout{2, 3, 64, DType::kBF16, 16};

TEST(MemoryPlan, AllOfTheModelsContextWhereItFits) {
  ASSERT_EQ(kLayout.bytes_per_page(), 24576);
  const auto plan = plan_memory(kLayout, 1000, 0, 0, int64_t{1} << 30);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->max_context, 1000);
  EXPECT_EQ(plan->n_pages, 63);  // ceil(1000 / 16)
  EXPECT_EQ(plan->note, "");
}

// Three quarters of 1,310,720 bytes are 40 pages of 16 tokens.
TEST(MemoryPlan, ShortenedWithANote) {
  const auto plan = plan_memory(kLayout, 1000, 0, 0, 1310720);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->max_context, 640);
  EXPECT_EQ(plan->n_pages, 40);
  EXPECT_NE(plan->note.find("from 1000 to 640 tokens"), std::string::npos) << plan->note;
}

TEST(MemoryPlan, WhatWasAskedForAndDoesNotFitIsAnError) {
  const auto plan = plan_memory(kLayout, 1000, 900, 0, 1310720);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kResources);
  const auto none = plan_memory(kLayout, 1000, 0, 0, 1000);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kResources);
}

TEST(MemoryPlan, LongerThanTheModelIsWrongUsage) {
  const auto plan = plan_memory(kLayout, 1000, 1001, 0, int64_t{1} << 30);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kUsage);
}

TEST(MemoryPlan, GivenBytesAreUsedInFull) {
  const auto plan = plan_memory(kLayout, 100, 0, 24576 * 20 + 5, 1);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->n_pages, 20);
  EXPECT_EQ(plan->max_context, 100);
}

TEST(MemoryPlan, TheSystemHasSomeMemory) { EXPECT_GT(available_memory_bytes(), 1 << 20); }

}  // namespace
}  // namespace sextant
