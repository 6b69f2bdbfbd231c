#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/cpu_info.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace sextant {
namespace {

TEST(Checked, OverflowIsNullopt) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_mul(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
}

TEST(Checked, ProductRefusesOverflowBeforeAZero) {
  const std::vector<int64_t> huge = {int64_t{1} << 32, int64_t{1} << 32, 0};
  EXPECT_EQ(checked_product(huge), std::nullopt);
  const std::vector<int64_t> zero_first = {0, std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(checked_product(zero_first), 0);
  const std::vector<int64_t> negative = {-1};
  EXPECT_EQ(checked_product(negative), std::nullopt);
  EXPECT_EQ(checked_product({}), 1);
}

TEST(Result, EveryCodeHasTheStatusOfTheContract) {
  EXPECT_EQ(exit_status(Code::kGate), 1);
  EXPECT_EQ(exit_status(Code::kModel), 2);
  EXPECT_EQ(exit_status(Code::kInput), 3);
  EXPECT_EQ(exit_status(Code::kUnsupported), 4);
  EXPECT_EQ(exit_status(Code::kResources), 5);
  EXPECT_EQ(exit_status(Code::kUsage), 64);
  EXPECT_EQ(exit_status(Code::kInternal), 70);
  EXPECT_EQ(exit_status(Code::kCancelled), 130);
}

Result<int> half(int x) {
  if (x % 2 != 0) return fail(Code::kInput, "expected an even number, found {}", x);
  return x / 2;
}
Result<int> quarter(int x) {
  SX_ASSIGN(const int h, half(x));
  SX_TRY(half(h));
  return h / 2;
}

TEST(Result, ErrorsPassThroughUnchanged) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().text, "expected an even number, found 3");
  EXPECT_EQ(quarter(5).error().code, Code::kInput);
}

TEST(ThreadPool, EveryTaskRunsOnceOnAnyNumberOfThreads) {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> hits(37);
      pool.run(37, [&](int64_t task, int worker) {
        EXPECT_LT(worker, n_threads);
        hits[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, SplitCoversTheRangeInGrains) {
  ThreadPool pool(3);
  for (const int64_t n : {0, 1, 15, 16, 17, 100}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
    pool.split(n, 16, [&](int64_t begin, int64_t end, int) {
      EXPECT_EQ(begin % 16, 0);
      for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)].fetch_add(1);
    });
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

TEST(ThreadPool, WorkersWakeAfterTheySlept) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> sum{0};
    pool.run(10, [&](int64_t task, int) { sum.fetch_add(static_cast<int>(task)); });
    EXPECT_EQ(sum.load(), 45);
  }
}

TEST(ThreadPool, EachWorkerIsCalledOnceOnAThreadOfItsOwn) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread::id> ids(4);
    std::atomic<int> n_calls{0};
    pool.each_worker([&](int worker) {
      ids[static_cast<size_t>(worker)] = std::this_thread::get_id();
      n_calls.fetch_add(1);
    });
    EXPECT_EQ(n_calls.load(), 4);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
  }
}

TEST(ThreadPool, AHeldWorkerLeavesTheOtherTasksToTheOthers) {
  ThreadPool pool(2);
  // The worker is held in the first run's second task until this thread, having done the other
  // three, lets it go; a run that shared its tasks out beforehand would never end.
  std::atomic<bool> is_held{false};
  std::atomic<int> n_others{0};
  pool.run(4, [&](int64_t, int worker) {
    if (worker == 1 && !is_held.exchange(true)) {
      while (n_others.load() < 3) std::this_thread::yield();
      return;
    }
    if (worker == 0 && n_others.load() == 0)
      while (!is_held.load()) std::this_thread::yield();
    n_others.fetch_add(1);
  });
  EXPECT_EQ(n_others.load(), 3);
}

TEST(Arena, PiecesAreAlignedAndDisjoint) {
  Arena arena(4096);
  float* a = arena.take<float>(3);
  float* b = arena.take<float>(5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0U);
  EXPECT_GE(b, a + 3);
  arena.reset();
  EXPECT_EQ(arena.take<float>(1), a);
}

TEST(Arena, LargeBuffersAreAlignedAndWritableToTheLastByte) {
  for (const int64_t n : {int64_t{8} << 20, (int64_t{8} << 20) + 1, int64_t{33} << 20}) {
    const AlignedBuffer buffer(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2 << 20), 0U);
#if defined(NDEBUG)
    EXPECT_EQ(buffer.as<uint8_t>()[n - 1], 0);
#endif
    buffer.as<uint8_t>()[0] = 1;
    buffer.as<uint8_t>()[n - 1] = 2;
  }
}

#if !defined(NDEBUG)
TEST(Arena, DebugBuildsPoisonMemory) {
  const AlignedBuffer buffer(64);
  EXPECT_TRUE(std::isnan(buffer.as<float>()[7]));
}
#endif

TEST(CpuInfo, ReportsAtLeastOneThread) { EXPECT_GE(cpu_info().n_threads, 1); }

}  // namespace
}  // namespace sextant
