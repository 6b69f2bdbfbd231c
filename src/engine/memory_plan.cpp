#include "engine/memory_plan.h"

#include <algorithm>
#include <fstream>

#include "base/checked.h"

namespace sextant {
namespace {

constexpr int64_t kMinContext = 64;  // a shorter one answers nothing

std::string megabytes(int64_t bytes) { return fmt::format("{} MB", (bytes + 999'999) / 1'000'000); }

int64_t read_number(const std::string& path) {
  std::ifstream in(path);
  int64_t value = -1;
  if (!(in >> value)) return -1;
  return value;
}

}  // namespace

Result<MemoryPlan> plan_memory(const KvLayout& layout, int64_t model_context, int64_t max_context,
                               int64_t kv_bytes, int64_t available_bytes) {
  if (max_context < 0 || kv_bytes < 0)
    return fail(Code::kUsage, "expected a context of at least 1 token, found {}", max_context);
  if (max_context > model_context)
    return fail(Code::kUsage,
                "expected a context of at most {} tokens, which the model is made for, found {}",
                model_context, max_context);
  const int64_t wanted = max_context > 0 ? max_context : model_context;
  const int64_t page_bytes = layout.bytes_per_page();
  // A quarter of what is there stays for the step's buffers and everybody else.
  const int64_t limit_bytes = kv_bytes > 0 ? kv_bytes : available_bytes / 4 * 3;
  const int64_t pages_there = limit_bytes / page_bytes;
  const int64_t pages_wanted = ceil_div(wanted, layout.page_tokens);
  MemoryPlan plan;
  plan.n_pages = kv_bytes > 0 ? pages_there : std::min(pages_wanted, pages_there);
  plan.max_context = std::min(wanted, plan.n_pages * layout.page_tokens);
  const bool fits = plan.max_context == wanted;
  if (fits) return plan;
  if (max_context > 0 || plan.max_context < std::min(kMinContext, wanted))
    return fail(Code::kResources,
                "not enough memory for a context of {} tokens: its keys and values need {}, there "
                "is {}; take a shorter context or close other programs",
                wanted, megabytes(pages_wanted * page_bytes), megabytes(limit_bytes));
  plan.note = fmt::format(
      "context shortened from {} to {} tokens: the keys and values of all would need {}, there is "
      "{}",
      wanted, plan.max_context, megabytes(pages_wanted * page_bytes), megabytes(limit_bytes));
  return plan;
}

int64_t available_memory_bytes() {
  int64_t available = INT64_MAX;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = kib * 1024;
  }
  // Control group, version 2: "0::/path" under /sys/fs/cgroup.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string directory = "/sys/fs/cgroup" + line.substr(3);
    const int64_t max = read_number(directory + "/memory.max");
    const int64_t used = read_number(directory + "/memory.current");
    if (max >= 0 && used >= 0) available = std::min(available, std::max<int64_t>(0, max - used));
  }
  return available;
}

}  // namespace sextant
