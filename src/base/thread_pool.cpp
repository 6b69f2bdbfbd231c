#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sextant {
namespace {

constexpr uint64_t kTasksLeft = 0xffffffff;  // the lower half of the state
constexpr uint64_t kOneRun = kTasksLeft + 1;

// About 20 to 50 us of spinning covers the gap between two kernels of a step; after that a worker
// sleeps. More threads than processors must not spin long, so every few hundred rounds yield.
constexpr unsigned kSpinRounds = 4000;

inline void pause_cpu(unsigned round) {
#if defined(__x86_64__)
  _mm_pause();
#endif
  if (round % 256 == 255) std::this_thread::yield();
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads < 1 ? 1 : n_threads) {
  threads_.reserve(static_cast<size_t>(n_threads_ - 1));
  for (int worker = 1; worker < n_threads_; ++worker)
    threads_.emplace_back([this, worker] { worker_loop(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_release);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Takes tasks until none is left.
void ThreadPool::work(int worker) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & kTasksLeft) != 0) {
    const int64_t n_tasks = n_tasks_.load(std::memory_order_relaxed);
    const RawTask task = task_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      continue;
    task(context, n_tasks - static_cast<int64_t>(state & kTasksLeft), worker);
    n_done_.fetch_add(1, std::memory_order_acq_rel);
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::run_raw(int64_t n_tasks, RawTask task, void* context) {
  if (n_tasks <= 0) return;
  if (n_threads_ == 1 || n_tasks == 1) {
    for (int64_t i = 0; i < n_tasks; ++i) task(context, i, 0);
    return;
  }
  SX_CHECK(n_tasks <= static_cast<int64_t>(kTasksLeft), "{} tasks in one run", n_tasks);
  n_tasks_.store(n_tasks, std::memory_order_relaxed);
  task_.store(task, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  n_done_.store(0, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    const uint64_t run = state_.load(std::memory_order_relaxed) & ~kTasksLeft;
    state_.store(run + kOneRun + static_cast<uint64_t>(n_tasks), std::memory_order_release);
  }
  wake_.notify_all();
  work(0);
  for (unsigned round = 0; n_done_.load(std::memory_order_acquire) != n_tasks; ++round)
    pause_cpu(round);
}

void ThreadPool::worker_loop(int worker) {
  const auto has_work = [&] {
    return (state_.load(std::memory_order_acquire) & kTasksLeft) != 0 ||
           stop_.load(std::memory_order_acquire);
  };
  for (;;) {
    for (unsigned round = 0; round < kSpinRounds && !has_work(); ++round) pause_cpu(round);
    if (!has_work()) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, has_work);
    }
    if (stop_.load(std::memory_order_acquire)) return;
    work(worker);
  }
}

}  // namespace sextant
