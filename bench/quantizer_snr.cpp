// The signal-to-noise ratio of NVFP4 activations against how far the calibrated amax is off: the
// table of docs/nvfp4.md 4.1, on the samples it was computed from.
//   python3 tools/golden/nvfp4_snr.py data DIR
//   quantizer_snr DIR [A|B|C]    one line a ratio: log2 r, five distributions in dB
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "quant/input_quantizer.h"

namespace {

using namespace sextant;

constexpr std::array<const char*, 5> kDistributions = {"gauss", "laplace", "t4", "outch", "swiglu"};
constexpr std::array<double, 32> kLog2Ratios = {
    12, 11, 10, 9,  8,   7,   6,   5,   4,   3,   2,   1.5, 1,   0.5, 0.1, 0,
    -1, -4, -7, -9, -10, -11, -12, -13, -14, -15, -16, -17, -18, -19, -20, -22};

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

double snr_db(const std::vector<float>& x, Nvfp4Profile profile, double log2_ratio) {
  const auto n = static_cast<int64_t>(x.size());
  const double amax = double{amax_of(x.data(), n)} / std::exp2(log2_ratio);
  InputQuantizer quantizer;
  quantizer.form = InputForm::kNvfp4;
  quantizer.profile = profile;
  quantizer.multiplier = static_cast<float>(amax / 2688.0);
  quantizer.divisor = static_cast<float>(2688.0 / amax);
  std::vector<float> y(x.size());
  std::array<float, 1> multiplier{};
  quantize_input(quantizer, {x.data(), 1, n}, {y.data(), 1, n}, multiplier);
  double signal = 0;
  double noise = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = double{x[i]} - double{y[i]} * double{multiplier[0]};
    signal += double{x[i]} * double{x[i]};
    noise += error * error;
  }
  return 10.0 * std::log10(signal / noise);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: quantizer_snr DIR [A|B|C]\n");
    return 64;
  }
  const auto profile = nvfp4_profile_from_name(argc > 2 ? argv[2] : "A");
  if (!profile || !nvfp4_takes_divisor(*profile)) {
    std::fprintf(stderr, "quantizer_snr: expected quantizer A, B or C, found %s\n", argv[2]);
    return 64;
  }
  std::vector<std::vector<float>> data;
  std::printf("%8s", "log2 r");
  for (const char* name : kDistributions) {
    data.push_back(read_floats(std::string(argv[1]) + "/" + name + ".f32"));
    if (data.back().empty()) {
      std::fprintf(stderr,
                   "quantizer_snr: cannot read %s/%s.f32; make it with "
                   "tools/golden/nvfp4_snr.py data\n",
                   argv[1], name);
      return 3;
    }
    std::printf("%9s", name);
  }
  std::printf("\n");
  for (const double ratio : kLog2Ratios) {
    std::printf("%8.1f", ratio);
    for (const std::vector<float>& x : data) std::printf("%9.2f", snr_db(x, *profile, ratio));
    std::printf("\n");
  }
  return 0;
}
