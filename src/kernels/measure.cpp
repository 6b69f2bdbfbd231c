#include "kernels/measure.h"

#include <algorithm>
#include <cstring>

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu_info.h"
#include "kernels/cpu/measure_isa.h"
#include "kernels/pack_source.h"

namespace sextant {
namespace {

// Sums in eight independent lanes of 64 bits, so that memory is the limit and nothing is optimized
// away.
uint64_t read_portable(const uint64_t* p, int64_t n) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= n; i += 8)
    for (int64_t j = 0; j < 8; ++j) sums[j] += p[i + j];
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

double flops_portable(int64_t rounds) {
  float sums[16] = {};
  for (int64_t i = 0; i < rounds; ++i)
    for (int j = 0; j < 16; ++j) sums[j] = sums[j] * 0.5F + 1.0F;
  volatile float keep = 0.0F;
  for (const float sum : sums) keep = keep + sum;
  return static_cast<double>(rounds) * 16 * 2;
}

uint64_t read_all(const uint64_t* p, int64_t n) {
#if defined(SX_HAVE_AVX512)
  if (cpu_info().avx512) return cpu::avx512_read(p, n);
#endif
#if defined(SX_HAVE_AVX2)
  if (cpu_info().avx2) return cpu::avx2_read(p, n);
#endif
  return read_portable(p, n);
}

double flops(int64_t rounds, bool narrow) {
#if defined(SX_HAVE_AVX512)
  if (cpu_info().avx512 && !narrow) return cpu::avx512_flops(rounds);
#endif
#if defined(SX_HAVE_AVX2)
  if (cpu_info().avx2) return cpu::avx2_flops(rounds);
#endif
  (void)narrow;
  return flops_portable(rounds);
}

// Random weights of ordinary size: subnormals and NaN would measure something else.
struct BenchWeights {
  std::vector<std::byte> weight;
  std::vector<std::byte> scales;
  WeightSource source;
};

BenchWeights bench_weights(WeightForm form, int64_t n, int64_t k) {
  BenchWeights w;
  w.source.form = form;
  w.source.n = n;
  w.source.k = k;
  w.weight.resize(static_cast<size_t>(n * weight_row_bytes(form, k)));
  uint64_t state = 1;
  const auto next = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>(state >> 40);
  };
  const int64_t count = static_cast<int64_t>(w.weight.size());
  if (form == WeightForm::kF32 || form == WeightForm::kBf16 || form == WeightForm::kF16) {
    // Magnitudes in [1/4, 2): exponent fields of the format's bias - 2 to its bias.
    const int64_t size = form == WeightForm::kF32 ? 4 : 2;
    for (int64_t i = 0; i < count; i += size) {
      const uint32_t random = next();
      const uint32_t sign = random & 0x8000U;
      const uint32_t high = form == WeightForm::kF16 ? (0x3400U + (random & 0x0BFFU) % 0x0C00U)
                                                     : (0x3E80U + (random & 0x0FFFU) % 0x0180U);
      const auto half = static_cast<uint16_t>(sign | high);
      std::memcpy(w.weight.data() + i + size - 2, &half, sizeof half);
    }
  } else {
    for (std::byte& b : w.weight) b = static_cast<std::byte>(next() & 0xBFU);
  }
  w.scales.assign(static_cast<size_t>(n * source_scale_cols(w.source)),
                  form == WeightForm::kMxfp4 ? std::byte{127} : std::byte{0x38});
  w.source.weight = w.weight.data();
  w.source.scales = fp4_block(form) != 0 ? w.scales.data() : nullptr;
  return w;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

const char* form_text(WeightForm form) {
  static constexpr const char* kNames[] = {"f32", "bf16", "f16", "fp8", "nvfp4", "mxfp4"};
  return kNames[static_cast<size_t>(form)];
}

}  // namespace

double measure_read_bytes_per_s(ThreadPool& pool, int64_t n_bytes) {
  const AlignedBuffer buffer(std::max<int64_t>(n_bytes, 4096));
  std::memset(buffer.data(), 1, static_cast<size_t>(buffer.size()));
  const auto* words = buffer.as<const uint64_t>();
  double best = 0.0;
  for (int pass = 0; pass < 5; ++pass) {
    const int64_t start = now_us();
    pool.split(buffer.size() / 8, 512, [&](int64_t begin, int64_t end, int) {
      volatile uint64_t keep = read_all(words + begin, end - begin);
      (void)keep;
    });
    best =
        std::max(best, static_cast<double>(buffer.size()) / std::max(1e-6, seconds_since(start)));
  }
  return best;
}

double measure_flops_per_s(ThreadPool& pool, std::string_view isa) {
  constexpr int64_t kRounds = 2'000'000;
  double best = 0.0;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<double> done(static_cast<size_t>(pool.n_threads()));
    const int64_t start = now_us();
    pool.run(pool.n_threads(), [&](int64_t task, int) {
      done[static_cast<size_t>(task)] = flops(kRounds, isa == "avx2");
    });
    const double seconds = std::max(1e-6, seconds_since(start));
    double total = 0.0;
    for (const double d : done) total += d;
    best = std::max(best, total / seconds);
  }
  return best;
}

BenchKernel bench_linear(const Ops& ops, WeightForm form, int64_t m, int64_t n, int64_t k,
                         ActForm act, ThreadPool& pool) {
  constexpr int64_t kColdBytes = int64_t{96} << 20;  // more than an L3
  BenchKernel result{.form = form_text(form), .m = m, .n = n, .k = k};
  const BenchWeights weights = bench_weights(form, n, k);
  std::vector<PackedLinear> copies;
  do {
    copies.push_back(ops.pack(weights.source, pool));
  } while (m <= 16 &&
           static_cast<int64_t>(copies.size()) * copies.front().weight_bytes < kColdBytes);
  std::vector<float> x(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0F;
  const std::vector<Mat<float>> ys = {Mat<float>(y.data(), m, n)};
  std::vector<double> times;
  const int64_t start = now_us();
  // A pass over all copies is one sample; half a second in all, three samples at least.
  for (int pass = -1; pass < 3 || (seconds_since(start) < 0.5 && times.size() < 200); ++pass) {
    const int64_t begin = now_us();
    for (const PackedLinear& w : copies) {
      const std::vector<const PackedLinear*> ws = {&w};
      ops.linear(ws, Mat<const float>(x.data(), m, k), act, ys, pool);
    }
    if (pass >= 0) times.push_back(seconds_since(begin) / static_cast<double>(copies.size()));
  }
  result.seconds = std::max(1e-9, median(times));
  result.bytes_per_s = static_cast<double>(copies.front().weight_bytes) / result.seconds;
  result.flops_per_s = 2.0 * static_cast<double>(m * n) * static_cast<double>(k) / result.seconds;
  return result;
}

Result<BenchReport> bench_machine(const BenchOptions& options) {
  SX_ASSIGN(const Ops* ops, select_ops(options.isa));
  BenchReport report{.cpu = cpu_info().model_name, .isa = ops->name, .threads = {}};
  std::vector<int> counts = options.threads;
  if (counts.empty())
    counts =
        cpu_info().n_threads > 1 ? std::vector<int>{1, cpu_info().n_threads} : std::vector<int>{1};
  for (const int n_threads : counts) {
    ThreadPool pool(n_threads);
    BenchThreads one{.n_threads = pool.n_threads(),
                     .read_bytes_per_s = measure_read_bytes_per_s(pool, options.read_bytes),
                     .flops_per_s = measure_flops_per_s(pool, ops->name),
                     .kernels = {}};
    if (options.kernels) {
      for (const WeightForm form : {WeightForm::kNvfp4, WeightForm::kFp8, WeightForm::kBf16})
        for (const int64_t m : {1, 4, 256})
          one.kernels.push_back(bench_linear(*ops, form, m, 4096, 4096, ActForm::kBf16, pool));
    }
    // The stream again: a noisy neighbor during the first measurement must not flatter the shares.
    one.read_bytes_per_s =
        std::max(one.read_bytes_per_s, measure_read_bytes_per_s(pool, options.read_bytes));
    for (BenchKernel& kernel : one.kernels) {
      kernel.read_share = kernel.bytes_per_s / one.read_bytes_per_s;
      kernel.flops_share = kernel.flops_per_s / one.flops_per_s;
    }
    report.threads.push_back(std::move(one));
  }
  return report;
}

}  // namespace sextant
