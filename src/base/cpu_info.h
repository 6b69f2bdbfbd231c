// What this machine's processor can do, read once from CPUID. The kernel tables are chosen from it
// (kernels/ops.h).
#pragma once

#include <string>

namespace sextant {

struct CpuInfo {
  std::string model_name;  // "AMD EPYC ...", or "unknown"
  int n_threads = 1;       // processors this process may run on
  bool avx2 = false;       // AVX2, FMA, F16C and BMI2
  bool avx512 = false;     // F, BW, DQ, VL, VNNI, VBMI
  bool avx512_bf16 = false;
  // Intel's cores multiply BF16 pairs (vdpbf16ps) at half the rate of float32 FMA, AMD's at twice
  // it (docs/performance.md).
  bool slow_bf16_dot = false;
  bool amx_bf16 = false;
};

const CpuInfo& cpu_info();

}  // namespace sextant
