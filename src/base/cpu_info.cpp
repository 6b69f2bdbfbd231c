#include "base/cpu_info.h"

#include <sched.h>

#include <fstream>
#include <thread>

namespace sextant {
namespace {

std::string read_model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

CpuInfo read_cpu_info() {
  CpuInfo info;
  info.model_name = read_model_name();
  cpu_set_t set;
  CPU_ZERO(&set);
  info.n_threads = sched_getaffinity(0, sizeof set, &set) == 0
                       ? CPU_COUNT(&set)
                       : static_cast<int>(std::thread::hardware_concurrency());
  if (info.n_threads < 1) info.n_threads = 1;
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks the operating system (XCR0) whether it saves the registers.
  __builtin_cpu_init();
  info.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi2");
  info.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
  info.avx512_bf16 = info.avx512 && __builtin_cpu_supports("avx512bf16");
  info.slow_bf16_dot = __builtin_cpu_is("intel");
  // AMX asks for a permission of the kernel; the table that uses it requests it. /proc/cpuinfo says
  // what the processor has.
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("flags", 0) == 0) {
      info.amx_bf16 = line.find("amx_bf16") != std::string::npos;
      break;
    }
  }
#endif
  return info;
}

}  // namespace

const CpuInfo& cpu_info() {
  static const CpuInfo info = read_cpu_info();
  return info;
}

}  // namespace sextant
