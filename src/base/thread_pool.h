// A fork-join pool. run(n_tasks, f) calls f(task_idx, worker_idx) once for every task on the pool's
// threads, the caller being worker 0, and returns when all are done. Tasks are handed out in order
// from one counter; for static splits use one task a worker. One run at a time, from one thread; f
// must not throw and must not call run. Workers spin briefly, then sleep. A run waits for tasks,
// not for workers: one that the system has not scheduled in time costs nothing, since the others
// take its tasks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace sextant {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);  // clamped to at least 1; threads are created here and joined
                                       // by the destructor
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  template <class F>
  void run(int64_t n_tasks, F&& f) {
    using Fn = std::remove_reference_t<F>;
    run_raw(
        n_tasks,
        [](void* context, int64_t task, int worker) { (*static_cast<Fn*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Calls f(worker_idx) once on every thread of the pool, for what each thread keeps of its own.
  template <class F>
  void each_worker(F&& f) {
    std::atomic<int> n_arrived{0};
    run(n_threads_, [&](int64_t, int worker) {
      f(worker);
      // Nobody leaves before all have come, so no thread takes two.
      n_arrived.fetch_add(1, std::memory_order_acq_rel);
      while (n_arrived.load(std::memory_order_acquire) < n_threads_) std::this_thread::yield();
    });
  }

  // Splits [0, n) into one contiguous range a worker, each a multiple of grain but the last;
  // f(begin, end, worker_idx).
  template <class F>
  void split(int64_t n, int64_t grain, F&& f) {
    if (n <= 0) return;
    const int64_t n_grains = (n + grain - 1) / grain;
    const int64_t parts = n_grains < n_threads_ ? n_grains : n_threads_;
    run(parts, [&](int64_t part, int worker) {
      const int64_t begin = n_grains * part / parts * grain;
      const int64_t end_grain = n_grains * (part + 1) / parts * grain;
      f(begin, end_grain < n ? end_grain : n, worker);
    });
  }

 private:
  using RawTask = void (*)(void* context, int64_t task, int worker);
  void run_raw(int64_t n_tasks, RawTask task, void* context);
  void work(int worker);
  void worker_loop(int worker);

  const int n_threads_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // The number of the run in the upper half, of its tasks not handed out in the lower. A thread
  // takes a task by exchanging the word, which fails when the run is no longer the one it read (but
  // for exactly 2^32 runs in between). The three fields below change only while no task is left to
  // take, so a taken task's are its own.
  std::atomic<uint64_t> state_{0};
  std::atomic<int64_t> n_tasks_{0};
  std::atomic<RawTask> task_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> n_done_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace sextant
