#include "cli/common.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/cpu_info.h"
#include "io/json.h"
#include "kernels/ops.h"
#include "model/policy.h"

namespace sextant {
namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kMaxIds = size_t{64} << 20;

bool is_separator(char c) { return c == ' ' || c == ',' || c == '\n' || c == '\r' || c == '\t'; }

Result<int32_t> checked_id(int64_t id, std::string_view name, size_t index) {
  if (id < 0 || id > INT32_MAX)
    return fail(Code::kInput, "{}: expected token ids from 0 to 2147483647, found {} at place {}",
                name, id, index);
  return static_cast<int32_t>(id);
}

Result<std::vector<int32_t>> parse_json_ids(std::string_view text, std::string_view name) {
  SX_ASSIGN(const JsonValue json, parse_json(text, name));
  const JsonValue* list = json.is_object() ? json.find("ids") : &json;
  if (list == nullptr || !list->is_array())
    return fail(Code::kInput,
                "{}: expected an array of token ids or an object with \"ids\", found {}", name,
                list == nullptr ? "an object without it" : list->kind_name());
  std::vector<int32_t> ids;
  ids.reserve(list->array().size());
  for (const JsonValue& value : list->array()) {
    if (!value.is_int())
      return fail(Code::kInput, "{}: expected a token id at place {}, found {}", name, ids.size(),
                  value.kind_name());
    SX_ASSIGN(const int32_t id, checked_id(value.as_int(), name, ids.size()));
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

void add_common_options(Command command, CommonOptions& common, const std::string& group) {
  command.flag("--json", &common.json, "one JSON document on standard output, nothing else there",
               {.group = group});
  command.option("-o,--output", &common.output, "write the results to this file",
                 {.value = "FILE", .group = group});
  command.option("-j,--threads", &common.threads,
                 "threads to compute with (default: all processors)",
                 {.value = "N", .range = IntRange{1, kMaxThreads}, .group = group});
  command.option("--isa", &common.isa,
                 "kernels: ref, avx2, avx512-nobf16, avx512, amx (default: best)",
                 {.value = "NAME", .group = group});
  command.option("--device", &common.device, "where to compute: cpu",
                 {.value = "DEV", .group = group});
  command.option("--policy", &common.policies,
                 "[PATTERN=]ACT[,weights=...]: f32, a16, a4:static, ..., auto; or @FILE",
                 {.value = "SPEC", .repeatable = true, .group = group});
  command.flag("--mmap", &common.mmap, "weights stay in the mapped file", {.group = group});
  command.option("--profile", &common.profile, "", {.value = "NAME", .group = ""});
  command.option("--seed", &common.seed, "seed of everything random",
                 {.value = "N", .group = group});
  command.flag("-q,--quiet", &common.quiet, "no progress, no notes", {.group = group});
  command.flag("-v,--verbose", &common.verbose, "details", {.group = group});
  command.option("--color", &common.color, "auto, always or never (NO_COLOR is obeyed)",
                 {.value = "WHEN", .choices = {"auto", "always", "never"}, .group = group});
  command.option(
      "--log-level", &common.log_level, "log to standard error: debug to off",
      {.value = "LEVEL", .choices = {"debug", "info", "warning", "error", "off"}, .group = group});
}

void add_allow_option(Command command, CommonOptions& common) {
  command.option("--allow", &common.allow,
                 "accept an error of the checkpoint, as C16:'model.extra.*'; may be repeated",
                 {.value = "ID[:PATTERN]", .repeatable = true});
}

Status read_policy_files(CommonOptions& common) {
  constexpr int64_t kMaxBytes = 1 << 20;
  std::vector<std::string> policies;
  for (const std::string& spec : common.policies) {
    if (!spec.starts_with("@")) {
      policies.push_back(spec);
      continue;
    }
    const std::string path = spec.substr(1);
    if (path.empty())
      return fail_at(at_field("--policy"), Code::kUsage,
                     "--policy @: expected the name of a file behind @");
    SX_ASSIGN(const std::string text, read_text(path, kMaxBytes));
    const size_t before = policies.size();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      line.erase(std::min(line.find('#'), line.size()));
      const size_t first = line.find_first_not_of(" \t\r");
      if (first == std::string::npos) continue;
      policies.push_back(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first));
    }
    if (policies.size() == before)
      return fail_at(at_file(path), Code::kUsage,
                     "--policy {}: expected a policy a line, found none in {}", spec, path);
  }
  common.policies = std::move(policies);
  return {};
}

Status check_common_options(const CommonOptions& common) {
  if (common.device != "cpu") {
    if (common.device == "cuda" || common.device.rfind("cuda:", 0) == 0)
      return fail_at(at_field("--device"), Code::kUnsupported,
                     "--device {}: this build computes on the processor only; use --device cpu",
                     common.device);
    return fail_at(at_field("--device"), Code::kUsage,
                   "--device: expected cpu or cuda[:N], found {}", common.device);
  }
  if (common.mmap)
    return fail_at(at_field("--mmap"), Code::kUnsupported,
                   "--mmap: this build repacks weights for its kernels at load and gives the "
                   "mapped pages back; leave --mmap away");
  if (common.profile)
    return fail_at(at_field("--profile"), Code::kUnsupported,
                   "--profile {}: it chooses among DeepSeek-V4's numerics, and this build does not "
                   "run that model; leave --profile away",
                   *common.profile);
  SX_TRY(select_ops(common.isa));
  SX_TRY(parse_policy(common.policies));
  return {};
}

Status check_gate_option(const char* name, std::optional<double> gate) {
  if (gate && !(std::isfinite(*gate) && *gate >= 0))
    return fail_at(at_field(name), Code::kUsage, "{}: expected a number from 0 on, found {}", name,
                   *gate);
  return {};
}

std::shared_ptr<ThreadPool> make_pool(const CommonOptions& common) {
  return std::make_shared<ThreadPool>(common.threads > 0 ? common.threads : cpu_info().n_threads);
}

Result<std::string> read_text(const std::string& path, int64_t max_bytes) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  std::FILE* file = standard ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    return fail_at(at_file(path), Code::kInput, "cannot read {}: {}", path, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  int reason = 0;
  for (;;) {
    errno = 0;
    const size_t n = std::fread(buffer, 1, sizeof buffer, file);
    text.append(buffer, n);
    if (static_cast<int64_t>(text.size()) > max_bytes) break;
    if (n < sizeof buffer) {
      if (std::ferror(file) != 0) reason = errno;
      break;
    }
  }
  if (!standard) std::fclose(file);
  if (reason != 0)
    return fail_at(at_file(path), Code::kInput, "cannot read {}: {}", name, std::strerror(reason));
  if (static_cast<int64_t>(text.size()) > max_bytes)
    return fail_at(at_file(path), Code::kInput, "{} is larger than the limit of {} bytes", name,
                   max_bytes);
  return text;
}

Result<std::vector<int32_t>> parse_ids(std::string_view text, std::string_view name) {
  while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
  if (!text.empty() && (text.front() == '[' || text.front() == '{'))
    return parse_json_ids(text, name);
  std::vector<int32_t> ids;
  while (!text.empty()) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    const auto length = static_cast<size_t>(end - text.data());
    if (error != std::errc{} || (length < text.size() && !is_separator(text[length])))
      return fail(Code::kInput, "{}: expected token ids, found \"{}\" at place {}", name,
                  one_line(text.substr(0, text.find_first_of(" ,\r\n\t", 0))), ids.size());
    SX_ASSIGN(const int32_t checked, checked_id(id, name, ids.size()));
    ids.push_back(checked);
    if (ids.size() > kMaxIds)
      return fail(Code::kInput, "{}: more than {} token ids", name, kMaxIds);
    text.remove_prefix(length);
    while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
  }
  return ids;
}

Result<std::vector<int32_t>> read_ids(const std::string& path) {
  SX_ASSIGN(const std::string text, read_text(path));
  const std::string name = path == "-" ? "standard input" : path;
  SX_ASSIGN(std::vector<int32_t> ids, parse_ids(text, name));
  if (ids.empty())
    return fail_at(at_file(path), Code::kInput, "{} has no token ids: expected at least one", name);
  return ids;
}

}  // namespace sextant
