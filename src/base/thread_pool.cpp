#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sextant {
namespace {

// About 20 to 50 us of spinning covers the gap between two kernels of a step; after that a worker
// sleeps. More threads than processors must not spin long, so every few hundred rounds yield.
constexpr int kSpinRounds = 4000;

inline void pause_cpu(int round) {
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

void ThreadPool::work(int worker) {
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks_) return;
    task_(context_, task, worker);
  }
}

void ThreadPool::run_raw(int64_t n_tasks, RawTask task, void* context) {
  if (n_tasks <= 0) return;
  if (n_threads_ == 1 || n_tasks == 1) {
    for (int64_t i = 0; i < n_tasks; ++i) task(context, i, 0);
    return;
  }
  task_ = task;
  context_ = context;
  n_tasks_ = n_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  n_running_.store(n_threads_ - 1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  work(0);
  for (int round = 0; n_running_.load(std::memory_order_acquire) != 0; ++round) pause_cpu(round);
}

void ThreadPool::worker_loop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    uint64_t now = seen;
    for (int round = 0; round < kSpinRounds; ++round) {
      now = generation_.load(std::memory_order_acquire);
      if (now != seen || stop_.load(std::memory_order_acquire)) break;
      pause_cpu(round);
    }
    if (now == seen && !stop_.load(std::memory_order_acquire)) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] {
        return generation_.load(std::memory_order_acquire) != seen ||
               stop_.load(std::memory_order_acquire);
      });
      now = generation_.load(std::memory_order_acquire);
    }
    if (stop_.load(std::memory_order_acquire)) return;
    seen = now;
    work(worker);
    n_running_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace sextant
