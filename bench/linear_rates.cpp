// Rates of the linear kernels beside what the machine can do in the same run: every line of the
// table is one form, batch and table of ops, its GB/s as a share of the read stream measured just
// before it with the same threads, its FLOP/s as a share of the register peak. Weights rotate
// through copies that together exceed any cache. Threads are pinned to the processors given.
//
//   linear_rates [--isa NAME] [--cpus 0,1] [--n N] [--k K] [--forms nvfp4,bf16,fp8,fp8-block]
//                [--m 1,8,512] [--act bf16|f32] [--cold-mb MB]
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu_info.h"
#include "kernels/cpu/measure_isa.h"
#include "kernels/ops.h"
#include "kernels/pack_source.h"

namespace sextant {
namespace {

struct Options {
  std::string isa;
  std::vector<int64_t> cpus = {0};
  int64_t n = 14336;
  int64_t k = 4096;
  std::vector<std::string> forms = {"nvfp4", "fp8", "bf16"};
  std::vector<int64_t> ms = {1, 2, 4, 8, 16, 64, 512};
  ActForm act = ActForm::kBf16;
  int64_t cold_mb = 1024;
};

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}
std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> values;
  for (const std::string& part : split_list(text)) values.push_back(std::atoll(part.c_str()));
  return values;
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--isa")
      o.isa = value;
    else if (name == "--cpus")
      o.cpus = numbers(value);
    else if (name == "--n")
      o.n = std::atoll(value.c_str());
    else if (name == "--k")
      o.k = std::atoll(value.c_str());
    else if (name == "--forms")
      o.forms = split_list(value);
    else if (name == "--m")
      o.ms = numbers(value);
    else if (name == "--act")
      o.act = value == "f32" ? ActForm::kF32 : ActForm::kBf16;
    else if (name == "--cold-mb")
      o.cold_mb = std::atoll(value.c_str());
    else
      return false;
  }
  return argc % 2 == 1;
}

void pin(int64_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) std::printf("cannot pin to %ld\n", cpu);
}

// Every worker takes one task: none returns before all have come.
void pin_all(ThreadPool& pool, const std::vector<int64_t>& cpus) {
  std::atomic<int> arrived{0};
  pool.run(pool.n_threads(), [&](int64_t, int worker) {
    pin(cpus[static_cast<size_t>(worker)]);
    arrived.fetch_add(1);
    while (arrived.load() < pool.n_threads()) sched_yield();
  });
}

double read_rate(ThreadPool& pool, const AlignedBuffer& buffer) {
  const auto* words = buffer.as<const uint64_t>();
  std::atomic<uint64_t> keep{0};
  double best = 0.0;
  for (int pass = 0; pass < 3; ++pass) {
    const int64_t start = now_us();
    pool.split(buffer.size() / 8, 512, [&](int64_t begin, int64_t end, int) {
      keep.fetch_xor(cpu_info().avx512 ? cpu::avx512_read(words + begin, end - begin)
                                       : cpu::avx2_read(words + begin, end - begin));
    });
    best = std::max(best, static_cast<double>(buffer.size()) / seconds_since(start));
  }
  return best;
}

double peak_rate(ThreadPool& pool, bool bf16) {
  double best = 0.0;
  for (int pass = 0; pass < 3; ++pass) {
    std::atomic<int64_t> flops{0};
    const int64_t start = now_us();
    pool.run(pool.n_threads(), [&](int64_t, int) {
      constexpr int64_t kRounds = 3'000'000;
      const double done =
          bf16 ? cpu::avx512_bf16_flops(kRounds)
               : (cpu_info().avx512 ? cpu::avx512_flops(kRounds) : cpu::avx2_flops(kRounds));
      flops.fetch_add(static_cast<int64_t>(done));
    });
    best = std::max(best, static_cast<double>(flops.load()) / seconds_since(start));
  }
  return best;
}

// Random codes without NaN, scales 1; the bytes matter for nothing but that.
struct Weights {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<float> fp8_scales;
  WeightSource source;
};

void make_weights(const std::string& form, int64_t n, int64_t k, Weights& w) {
  w.source.n = n;
  w.source.k = k;
  w.source.form = form == "nvfp4"   ? WeightForm::kNvfp4
                  : form == "mxfp4" ? WeightForm::kMxfp4
                  : form == "bf16"  ? WeightForm::kBf16
                  : form == "f16"   ? WeightForm::kF16
                  : form == "f32"   ? WeightForm::kF32
                                    : WeightForm::kFp8;
  w.codes.resize(static_cast<size_t>(n * weight_row_bytes(w.source.form, k)));
  uint64_t state = 1;
  for (std::byte& b : w.codes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    b = static_cast<std::byte>((state >> 56) & 0xBFU);
  }
  w.source.weight = w.codes.data();
  if (form == "fp8-block") {
    w.source.scale_dtype = DType::kF32;
    w.source.block_n = w.source.block_k = 128;
    w.fp8_scales.assign(static_cast<size_t>(((n + 127) / 128) * ((k + 127) / 128)), 0.5F);
    w.source.scales = reinterpret_cast<const std::byte*>(w.fp8_scales.data());
  } else if (form != "fp8") {
    w.scales.assign(static_cast<size_t>(n * source_scale_cols(w.source)),
                    form == "nvfp4" ? std::byte{0x38} : std::byte{127});
    w.source.scales = w.scales.data();
  }
}

AlignedBuffer clone(const AlignedBuffer& from, ThreadPool& pool) {
  AlignedBuffer to(from.size());
  pool.split(from.size(), int64_t{1} << 20, [&](int64_t begin, int64_t end, int) {
    std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
  });
  return to;
}
PackedLinear clone(const PackedLinear& w, ThreadPool& pool) {
  PackedLinear c;
  c.form = w.form;
  c.n = w.n;
  c.k = w.k;
  c.data = clone(w.data, pool);
  c.row_multiplier = clone(w.row_multiplier, pool);
  c.scales = clone(w.scales, pool);
  c.block_n = w.block_n;
  c.block_k = w.block_k;
  c.weight_bytes = w.weight_bytes;
  c.table = w.table;
  c.layout = w.layout;
  return c;
}

// Median seconds of one call.
double time_linear(const Ops& ops, const std::vector<PackedLinear>& copies, int64_t m,
                   const Options& o, ThreadPool& pool) {
  std::vector<float> x(static_cast<size_t>(m * o.k));
  std::vector<float> y(static_cast<size_t>(m * o.n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 31) / 16.0F - 1.0F;
  std::vector<double> times;
  const Mat<float> out(y.data(), m, o.n);
  const int64_t start = now_us();
  size_t next = 0;
  while (times.size() < 5 || (seconds_since(start) < 0.7 && times.size() < 400)) {
    const PackedLinear* w = &copies[next++ % copies.size()];
    const int64_t begin = now_us();
    ops.linear({&w, 1}, Mat<const float>(x.data(), m, o.k), o.act, {&out, 1}, pool);
    times.push_back(seconds_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

int run(const Options& o) {
  const auto chosen = select_ops(o.isa);
  if (!chosen) {
    std::printf("%s\n", chosen.error().text.c_str());
    return 1;
  }
  const Ops& ops = **chosen;
  ThreadPool pool(static_cast<int>(o.cpus.size()));
  pin_all(pool, o.cpus);
  const AlignedBuffer stream(o.cold_mb << 20);
  pool.split(stream.size(), 4096, [&](int64_t begin, int64_t end, int) {
    std::memset(stream.data() + begin, 1, static_cast<size_t>(end - begin));
  });
  const double peak_f32 = peak_rate(pool, false);
  const double peak_bf16 = cpu_info().avx512_bf16 ? peak_rate(pool, true) : 0.0;
  const bool dot = o.act == ActForm::kBf16 && std::string(ops.name) == "avx512";
  const double peak = dot ? peak_bf16 : peak_f32;
  std::printf("%s, table %s, %zu thread(s), input %s, [%ld, %ld]\n", cpu_info().model_name.c_str(),
              ops.name, o.cpus.size(), o.act == ActForm::kBf16 ? "bf16" : "f32", o.n, o.k);
  std::printf("peak: float32 FMA %.0f GFLOP/s, vdpbf16ps %.0f GFLOP/s\n", peak_f32 / 1e9,
              peak_bf16 / 1e9);
  std::printf("| form | m | us | GB/s | stream GB/s | share | GFLOP/s | of peak |\n");
  for (const std::string& form : o.forms) {
    Weights w;
    make_weights(form, o.n, o.k, w);
    std::vector<PackedLinear> copies;
    const int64_t start = now_us();
    copies.push_back(ops.pack(w.source, pool));
    const double pack_seconds = seconds_since(start);
    while (static_cast<int64_t>(copies.size()) * copies.front().weight_bytes < o.cold_mb << 20)
      copies.push_back(clone(copies.front(), pool));
    for (const int64_t m : o.ms) {
      const double read = read_rate(pool, stream);
      const double seconds = time_linear(ops, copies, m, o, pool);
      const double bytes = static_cast<double>(copies.front().weight_bytes) / seconds;
      const double flops = 2.0 * static_cast<double>(m * o.n) * static_cast<double>(o.k) / seconds;
      std::printf("| %s | %ld | %.0f | %.1f | %.1f | %.0f %% | %.0f | %.0f %% |\n", form.c_str(), m,
                  seconds * 1e6, bytes / 1e9, read / 1e9, 100 * bytes / read, flops / 1e9,
                  100 * flops / peak);
      std::fflush(stdout);
    }
    std::printf("packing %s: %.2f GB/s of packed bytes; path: %s\n", form.c_str(),
                static_cast<double>(copies.front().weight_bytes) / pack_seconds / 1e9,
                std::string(ops.linear_path(w.source.form, o.act)).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace sextant

int main(int argc, char** argv) {
  sextant::Options options;
  if (!sextant::parse(argc, argv, options)) {
    std::printf("linear_rates: see the head of bench/linear_rates.cpp for its options\n");
    return 64;
  }
  return sextant::run(options);
}
