#include "doctor/lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "io/mapped_file.h"
#include "io/ordered_json.h"
#include "io/quote.h"
#include "io/sha256.h"

namespace sextant {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeadBytes = int64_t{1} << 20;
constexpr int64_t kPage = 4096;
constexpr int64_t kPages = 256;

// The files whose bytes decide what the model is.
std::vector<fs::path> locked_files(const Checkpoint& checkpoint) {
  std::vector<fs::path> out;
  for (const auto& shard : checkpoint.files()) out.push_back(shard->path());
  std::error_code error;
  for (const char* name : {"config.json", "generation_config.json", "hf_quant_config.json",
                           "model.safetensors.index.json", "consolidated.safetensors.index.json",
                           "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    if (const fs::path path = checkpoint.root() / name; fs::is_regular_file(path, error))
      out.push_back(path);
  return out;
}

// SHA-256 of the size, the first MiB (headers of all but huge files) and evenly spread pages.
Result<std::string> fingerprint(const fs::path& path) {
  SX_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&size, 1)));
  hash.update(bytes.first(static_cast<size_t>(std::min(size, kHeadBytes))));
  for (int64_t i = 0; i < kPages && size > kHeadBytes; ++i) {
    const int64_t at = kHeadBytes + (size - kHeadBytes) / kPages * i;
    const int64_t n = std::min(kPage, size - at);
    hash.update(bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
  }
  return hash.finish();
}

Status write_whole(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".tmp";
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  bool done = fd >= 0;
  for (size_t at = 0; done && at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    done = n > 0 || (n < 0 && errno == EINTR);
    if (n > 0) at += static_cast<size_t>(n);
  }
  done = done && ::fsync(fd) == 0;
  if (fd >= 0) ::close(fd);
  done = done && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (done) return {};
  const int error = errno;
  ::unlink(temporary.c_str());
  return fail_at(
      {path.string(), {}, {}, {}}, error == ENOSPC ? Code::kResources : Code::kInput,
      "{} cannot be written ({}); the lock stands beside the model, so its directory must "
      "be writable",
      quote_name(path.string(), 400), std::strerror(error));
}

Finding changed(const std::string& file, std::string message) {
  Finding f;
  f.id = "F5";
  f.slug = "changed-since-lock";
  f.file = file;
  f.instances = {file};
  f.message = std::move(message);
  f.remedy = "run doctor again; --write-lock accepts the files as they are now";
  return f;
}

}  // namespace

Status write_lock(const Checkpoint& checkpoint, const Diagnosis& diagnosis,
                  const std::string& version) {
  if (checkpoint.config() == nullptr)
    return fail_at({checkpoint.root().string(), {}, {}, {}}, Code::kUsage,
                   "--write-lock needs a model directory with its config.json, and {} was opened "
                   "without one",
                   quote_name(checkpoint.root().string(), 400));
  Json files = Json::array();
  for (const fs::path& path : locked_files(checkpoint)) {
    SX_ASSIGN(const std::string quick, fingerprint(path));
    SX_ASSIGN(const std::string whole, sha256_file(path));
    std::error_code error;
    files.push_back({{"name", path.filename().string()},
                     {"bytes", static_cast<int64_t>(fs::file_size(path, error))},
                     {"fingerprint", quick},
                     {"sha256", whole}});
  }
  Json findings = Json::array();
  for (const Finding& finding : diagnosis.findings)
    findings.push_back({{"id", finding.id},
                        {"slug", finding.slug},
                        {"severity", severity_name(finding.severity)},
                        {"count", finding.count}});
  const Json lock{{"format", 1},
                  {"version", version},
                  {"verdict", verdict_name(diagnosis.verdict)},
                  {"findings", findings},
                  {"files", files}};
  return write_whole(checkpoint.root() / kLockName, lock.dump(1) + "\n");
}

std::vector<Finding> check_lock(const Checkpoint& checkpoint, LockDepth depth) {
  if (checkpoint.config() == nullptr) return {};  // one file: the lock is of a directory
  const fs::path path = checkpoint.root() / kLockName;
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  FindingSet findings(checkpoint.allowed());
  const auto lock = read_json(path);
  const JsonValue* files = lock && lock->is_object() ? lock->find("files") : nullptr;
  if (files == nullptr || !files->is_array()) {
    findings.add(changed(kLockName, fmt::format("{} is no lock: {}", kLockName,
                                                lock ? "it lists no files" : lock.error().text)));
    return findings.take();
  }
  std::vector<fs::path> present = locked_files(checkpoint);
  const auto text = [](const JsonValue& entry, const char* name) {
    const JsonValue* value = entry.is_object() ? entry.find(name) : nullptr;
    return value != nullptr && value->is_string() ? value->as_string() : std::string();
  };
  for (const JsonValue& entry : files->array()) {
    const std::string name = text(entry, "name");
    const auto it = std::find_if(present.begin(), present.end(),
                                 [&](const fs::path& p) { return p.filename() == name; });
    if (it == present.end()) {
      findings.add(changed(name, fmt::format("{} was there when the model was locked and is gone",
                                             quote_name(name))));
      continue;
    }
    const auto found = depth == LockDepth::kEveryByte ? sha256_file(*it) : fingerprint(*it);
    present.erase(it);
    if (found && *found == text(entry, depth == LockDepth::kEveryByte ? "sha256" : "fingerprint"))
      continue;
    findings.add(
        changed(name, fmt::format("{} is not what it was when the model was locked{}",
                                  quote_name(name), found ? "" : ": " + found.error().text)));
  }
  for (const fs::path& extra : present)
    findings.add(
        changed(extra.filename().string(), fmt::format("{} was not there when the model was locked",
                                                       quote_name(extra.filename().string()))));
  return findings.take();
}

}  // namespace sextant
