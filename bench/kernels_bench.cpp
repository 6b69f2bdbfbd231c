// Every kernel at the shapes of real models: time, GB/s, GFLOP/s, and the share of this machine's
// read stream and multiply-add peak, all measured in this run.
//
//   kernels_bench [--isa NAME] [--threads N[,N...]] [--form NAME] [--quick]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu_info.h"
#include "kernels/measure.h"

namespace sextant {
namespace {

struct Arguments {
  std::string isa;
  std::string form;
  std::vector<int> threads;
  bool quick = false;
};

struct LinearCase {
  const char* model;
  int64_t n, k;
};
// Llama-3.1-8B's attention output and down projection, and SmolLM2-135M's gate.
constexpr LinearCase kLinears[] = {
    {"8B o_proj", 4096, 4096}, {"8B down", 4096, 14336}, {"135M gate", 1536, 576}};
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 512};
constexpr std::array<WeightForm, 6> kForms = {WeightForm::kNvfp4, WeightForm::kMxfp4,
                                              WeightForm::kFp8,   WeightForm::kBf16,
                                              WeightForm::kF16,   WeightForm::kF32};

void bench_linears(const Ops& ops, const Arguments& arguments, double read, double peak,
                   ThreadPool& pool) {
  std::printf("%-10s %-7s %5s %10s %9s %10s %8s %8s\n", "shape", "weights", "rows", "us", "GB/s",
              "GFLOP/s", "stream", "peak");
  for (const LinearCase& c : kLinears) {
    for (const WeightForm form : kForms) {
      for (const int64_t m : kRows) {
        if (arguments.quick && (m == 2 || m == 16 || m == 64)) continue;
        if (std::strcmp(ops.name, "ref") == 0 && m > 1) continue;
        static constexpr const char* kNames[] = {"f32", "bf16", "f16", "fp8", "nvfp4", "mxfp4"};
        if (!arguments.form.empty() && arguments.form != kNames[static_cast<size_t>(form)])
          continue;
        const BenchKernel kernel = bench_linear(ops, form, m, c.n, c.k, ActForm::kBf16, pool);
        std::printf("%-10s %-7s %5lld %10.1f %9.2f %10.1f %7.0f%% %7.0f%%\n", c.model,
                    kernel.form.c_str(), static_cast<long long>(m), kernel.seconds * 1e6,
                    kernel.bytes_per_s * 1e-9, kernel.flops_per_s * 1e-9,
                    100 * kernel.bytes_per_s / read, 100 * kernel.flops_per_s / peak);
        std::fflush(stdout);
      }
    }
  }
}

// Median seconds of a call.
template <class F>
double time_of(F&& f) {
  std::vector<double> times;
  f();
  const int64_t start = now_us();
  while (times.size() < 5 || (seconds_since(start) < 0.2 && times.size() < 10000)) {
    const int64_t begin = now_us();
    for (int i = 0; i < 8; ++i) f();
    times.push_back(seconds_since(begin) / 8);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

void row(const char* name, const std::string& shape, double seconds, double bytes, double flops) {
  std::printf("%-10s %-26s %10.1f us %9.2f GB/s %10.1f GFLOP/s\n", name, shape.c_str(),
              seconds * 1e6, bytes / seconds * 1e-9, flops / seconds * 1e-9);
}

void bench_attention(const Ops& ops, ThreadPool& pool) {
  struct Case {
    int64_t n_heads, n_kv_heads, head_dim, pos, rows;
  };
  constexpr Case kCases[] = {{32, 8, 128, 1000, 1},
                             {32, 8, 128, 8000, 1},
                             {32, 8, 128, 0, 512},
                             {9, 3, 64, 1000, 1},
                             {9, 3, 64, 0, 512}};
  for (const Case& c : kCases) {
    const int64_t width = c.n_kv_heads * c.head_dim;
    const int64_t n_pages = (c.pos + c.rows + 15) / 16;
    std::vector<uint16_t> cache(static_cast<size_t>(n_pages * 16 * width), uint16_t{0x3E80});
    std::vector<const void*> pages;
    for (int64_t p = 0; p < n_pages; ++p) pages.push_back(cache.data() + p * 16 * width);
    std::vector<float> q(static_cast<size_t>(c.rows * c.n_heads * c.head_dim), 0.25F);
    std::vector<float> out(q.size());
    const std::vector<AttentionSeq> seqs = {
        {0, c.rows, c.pos, {pages.data(), pages.data(), DType::kBF16, 16}}};
    const AttentionParams params{c.n_heads, c.n_kv_heads, c.head_dim, 0.1F, 0};
    const double seconds = time_of([&] {
      ops.attention(Mat<const float>(q.data(), c.rows, c.n_heads * c.head_dim), seqs, params,
                    Mat<float>(out.data(), c.rows, c.n_heads * c.head_dim), pool);
    });
    const double keys = static_cast<double>(c.rows) * static_cast<double>(c.pos) +
                        static_cast<double>(c.rows) * static_cast<double>(c.rows + 1) / 2;
    const std::string shape = std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads) + "x" +
                              std::to_string(c.head_dim) + " pos " + std::to_string(c.pos) +
                              " rows " + std::to_string(c.rows);
    row("attention", shape, seconds, 4.0 * static_cast<double>((c.pos + c.rows) * width),
        4.0 * keys * static_cast<double>(c.n_heads * c.head_dim));
  }
}

void bench_rows(const Ops& ops, ThreadPool& pool) {
  for (const int64_t m : {1, 512}) {
    const int64_t d = 4096;
    std::vector<float> x(static_cast<size_t>(m * d), 0.5F), y(x.size(), 0.25F);
    std::vector<float> weight(static_cast<size_t>(d), 1.0F);
    std::vector<float> angles(static_cast<size_t>(m * 64), 0.5F);
    const Mat<float> xm(x.data(), m, d), ym(y.data(), m, d);
    const Mat<const float> am(angles.data(), m, 64);
    const std::string shape = std::to_string(m) + " x " + std::to_string(d);
    const double bytes = static_cast<double>(m * d) * 4;
    const double count = static_cast<double>(m * d);
    row("rms_norm", shape, time_of([&] { ops.rms_norm(xm, weight, 1e-5F, ym, pool); }), 2 * bytes,
        4 * count);
    // A turn of no angle, so that repeating it does not drive x towards zero.
    std::vector<float> zeros(angles.size(), 0.0F);
    std::fill(angles.begin(), angles.end(), 1.0F);
    const Mat<const float> zm(zeros.data(), m, 64);
    row("rope", shape, time_of([&] { ops.rope(xm, 32, 128, am, zm, pool); }), 2 * bytes, 3 * count);
    row("silu_mul", shape, time_of([&] { ops.silu_mul(xm, xm, ym, pool); }), 3 * bytes, 4 * count);
    row("add", shape, time_of([&] { ops.add(ym, xm, pool); }), 3 * bytes, count);
    row("add_bias", shape, time_of([&] { ops.add_bias(ym, weight, pool); }), 2 * bytes, count);
    std::vector<std::byte> table(static_cast<size_t>(m * d * 2));
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < m; ++i) ids.push_back(static_cast<int32_t>(i));
    row("embed", shape, time_of([&] { ops.embed(table.data(), DType::kBF16, d, ids, ym); }),
        1.5 * bytes, 0);
    std::vector<uint16_t> cache(x.size());
    row("store_kv", shape, time_of([&] { ops.store_kv(x, DType::kBF16, cache.data()); }),
        1.5 * bytes, 0);
  }
}

std::vector<int> parse_counts(const char* text) {
  std::vector<int> counts;
  for (const char* p = text; *p != '\0';) {
    counts.push_back(std::atoi(p));
    p = std::strchr(p, ',');
    if (p == nullptr) break;
    ++p;
  }
  return counts;
}

int run(const Arguments& arguments) {
  const auto ops = select_ops(arguments.isa);
  if (!ops) {
    std::fprintf(stderr, "kernels_bench: %s\n", ops.error().text.c_str());
    return 4;
  }
  std::vector<int> counts = arguments.threads;
  if (counts.empty()) counts = {1, cpu_info().n_threads};
  std::printf("%s, table %s\n", cpu_info().model_name.c_str(), (*ops)->name);
  for (const int n_threads : counts) {
    ThreadPool pool(n_threads);
    const double read = measure_read_bytes_per_s(pool, int64_t{256} << 20);
    const double peak = measure_flops_per_s(pool, (*ops)->name);
    std::printf("\n%d threads: read stream %.1f GB/s, multiply-add peak %.1f GFLOP/s\n", n_threads,
                read * 1e-9, peak * 1e-9);
    bench_linears(**ops, arguments, read, peak, pool);
    bench_attention(**ops, pool);
    bench_rows(**ops, pool);
    std::printf("read stream again: %.1f GB/s\n",
                measure_read_bytes_per_s(pool, int64_t{256} << 20) * 1e-9);
  }
  return 0;
}

}  // namespace
}  // namespace sextant

int main(int argc, char** argv) {
  sextant::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--quick") {
      arguments.quick = true;
    } else if (name == "--isa" && has_value) {
      arguments.isa = argv[++i];
    } else if (name == "--form" && has_value) {
      arguments.form = argv[++i];
    } else if (name == "--threads" && has_value) {
      arguments.threads = sextant::parse_counts(argv[++i]);
    } else {
      std::fprintf(stderr,
                   "usage: kernels_bench [--isa NAME] [--threads N,N] [--form NAME] [--quick]\n");
      return 64;
    }
  }
  return sextant::run(arguments);
}
