// What this machine can do, measured in the same run as whatever is compared with it: the rate at
// which it streams from memory, and its float32 multiply-add peak in registers. `sextant bench` and
// the kernel benchmarks stand on it. No opinion about models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace sextant {

// Best of a few passes over n_bytes (far more than the caches), every thread its own part.
double measure_read_bytes_per_s(ThreadPool& pool, int64_t n_bytes);
// Float32 operations (a multiply-add counts two) per second of all threads, in registers, with the
// widest vectors that the ops table `isa` uses, or that this processor has.
double measure_flops_per_s(ThreadPool& pool, std::string_view isa = {});

struct BenchOptions {
  std::string isa;           // ops table; empty: the best
  std::vector<int> threads;  // empty: 1 and all of this machine
  int64_t read_bytes = int64_t{256} << 20;
  bool kernels = true;  // the linears below as well as the machine
};

// One linear [n, k] of one form on m rows.
struct BenchKernel {
  std::string form;  // "nvfp4", "bf16", "fp8"
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  double seconds = 0.0;      // of one call
  double bytes_per_s = 0.0;  // packed weights read
  double flops_per_s = 0.0;
  double read_share = 0.0;  // of the read stream with the same threads
  double flops_share = 0.0;
};

struct BenchThreads {
  int n_threads = 1;
  double read_bytes_per_s = 0.0;
  double flops_per_s = 0.0;
  std::vector<BenchKernel> kernels;
};

struct BenchReport {
  std::string cpu;
  std::string isa;
  std::vector<BenchThreads> threads;
};

// kUnsupported for an unknown isa. Takes some seconds.
Result<BenchReport> bench_machine(const BenchOptions& options);

// One measurement as bench_machine makes it: the median of repeated calls whose weights, over all
// copies, exceed the caches.
BenchKernel bench_linear(const Ops& ops, WeightForm form, int64_t m, int64_t n, int64_t k,
                         ActForm act, ThreadPool& pool);

}  // namespace sextant
