#include "doctor/lock.h"

#include <algorithm>

#include <fmt/format.h>

#include "checkpoint/fingerprint.h"
#include "io/ordered_json.h"
#include "io/quote.h"
#include "io/sha256.h"
#include "io/write_file.h"

namespace sextant {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLockFormat = 1;
constexpr size_t kMaxLocked = 100000;  // files, findings

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

Status write_lock_file(const fs::path& path, const std::string& text) {
  Status written = write_text_file(path, text);
  if (!written)
    written.error().text += "; the lock stands beside the model, so its directory must be writable";
  return written;
}

struct LockedFinding {
  std::string id;
  std::string slug;
  std::string severity;
  int64_t count = 0;

  bool operator==(const LockedFinding&) const = default;
  std::string text() const {
    return fmt::format("{} {}{}", id, slug, count > 1 ? fmt::format(" ({})", count) : "");
  }
};

struct LockedFile {
  std::string name;
  std::string fingerprint;
  std::string sha256;
};

struct Lock {
  std::string version;  // of the program that wrote it
  std::string verdict;
  std::vector<LockedFinding> findings;
  std::vector<LockedFile> files;
};

// Not findings that depend on a reference (--against), nor those about the lock itself.
std::vector<LockedFinding> locked_findings(const Diagnosis& diagnosis) {
  std::vector<LockedFinding> out;
  for (const Finding& f : diagnosis.findings)
    if (!f.id.starts_with('A') && f.id != "F5" && f.id != "F7")
      out.push_back({f.id, f.slug, std::string(severity_name(f.severity)), f.count});
  return out;
}

// What is wrong with a lock: a sentence that begins with its name.
template <class... Args>
tl::unexpected<Error> bad_lock(fmt::format_string<Args...> format, Args&&... args) {
  return fail(Code::kInput, "{} {}", kLockName, fmt::format(format, std::forward<Args>(args)...));
}

std::string text_member(const JsonValue& entry, std::string_view name) {
  const JsonValue* value = entry.is_object() ? entry.find(name) : nullptr;
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

const JsonValue* list_member(const JsonValue& object, std::string_view name) {
  const JsonValue* value = object.find(name);
  return value != nullptr && value->is_array() && value->array().size() <= kMaxLocked ? value
                                                                                      : nullptr;
}

// The format first: nothing else of an unknown one means what it seems to.
Status check_format(const JsonValue& lock) {
  if (!lock.is_object())
    return bad_lock("is no lock: expected an object, found {}", lock.kind_name());
  const JsonValue* format = lock.find("format");
  if (format == nullptr || !format->is_int())
    return bad_lock("is no lock: expected a whole number \"format\", found {}",
                    format == nullptr ? "none" : format->kind_name());
  if (format->as_int() == kLockFormat) return {};
  const std::string version = text_member(lock, "version");
  return bad_lock("has format {}, written by sextant {}; this version reads format {}",
                  format->as_int(), version.empty() ? "of no known version" : quote_name(version),
                  kLockFormat);
}

Result<Lock> read_lock(const fs::path& path) {
  const auto read = read_json(path);
  if (!read) return bad_lock("is no lock: {}", read.error().text);
  SX_TRY(check_format(*read));
  Lock lock{text_member(*read, "version"), text_member(*read, "verdict"), {}, {}};
  if (lock.version.empty() || lock.verdict.empty())
    return bad_lock("is no lock: it does not say its version and its verdict");
  const JsonValue* findings = list_member(*read, "findings");
  const JsonValue* files = list_member(*read, "files");
  if (findings == nullptr || files == nullptr || files->array().empty())
    return bad_lock("is no lock: expected lists of files and findings in it");
  for (const JsonValue& entry : findings->array()) {
    const JsonValue* count = entry.is_object() ? entry.find("count") : nullptr;
    lock.findings.push_back({text_member(entry, "id"), text_member(entry, "slug"),
                             text_member(entry, "severity"),
                             count != nullptr && count->is_int() ? count->as_int() : 0});
    const LockedFinding& f = lock.findings.back();
    if (f.id.empty() || f.slug.empty() || f.severity.empty() || f.count < 1)
      return bad_lock("is no lock: expected id, slug, severity and count of every finding in it");
  }
  for (const JsonValue& entry : files->array()) {
    lock.files.push_back({text_member(entry, "name"), text_member(entry, "fingerprint"),
                          text_member(entry, "sha256")});
    const LockedFile& f = lock.files.back();
    if (f.name.empty() || f.fingerprint.empty() || f.sha256.empty())
      return bad_lock("is no lock: expected name, fingerprint and sha256 of every file in it");
  }
  return lock;
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

// What of the model's files is not as it was locked.
std::vector<Finding> changed_files(const Checkpoint& checkpoint, const Lock& lock,
                                   LockDepth depth) {
  std::vector<Finding> out;
  size_t n_same = 0;
  std::vector<fs::path> present = locked_files(checkpoint);
  for (const LockedFile& file : lock.files) {
    const auto it = std::find_if(present.begin(), present.end(),
                                 [&](const fs::path& p) { return p.filename() == file.name; });
    if (it == present.end()) {
      out.push_back(changed(file.name, fmt::format("{} was there when the model was locked and is "
                                                   "gone",
                                                   quote_name(file.name))));
      continue;
    }
    const bool whole = depth == LockDepth::kEveryByte;
    const auto found = whole ? sha256_file(*it) : file_fingerprint(*it);
    present.erase(it);
    if (found && *found == (whole ? file.sha256 : file.fingerprint)) {
      ++n_same;
      continue;
    }
    out.push_back(changed(
        file.name, fmt::format("{} is not what it was when the model was locked{}",
                               quote_name(file.name), found ? "" : ": " + found.error().text)));
  }
  if (n_same == 0)
    return {changed(kLockName,
                    fmt::format("{} is of another model, or every file was replaced: none of the "
                                "{} files that it lists is here as it was",
                                kLockName, lock.files.size()))};
  for (const fs::path& extra : present)
    out.push_back(
        changed(extra.filename().string(), fmt::format("{} was not there when the model was locked",
                                                       quote_name(extra.filename().string()))));
  return out;
}

std::string listed(std::string_view what, const std::vector<LockedFinding>& findings) {
  std::string out;
  for (const LockedFinding& f : findings)
    out += fmt::format("{} {} {}", out.empty() ? fmt::format("; {}:", what) : ",",
                       escape_text(f.severity), escape_text(f.text()));
  return out;
}

// F7. A quick diagnosis cannot know most findings of the lock, so there it is only the errors, less
// those that it has itself or that the user allows.
void compare_verdicts(const Checkpoint& checkpoint, const Lock& lock, LockDepth depth,
                      const Diagnosis& diagnosis, FindingSet& findings) {
  const bool whole = depth == LockDepth::kEveryByte;
  const std::vector<LockedFinding> now = locked_findings(diagnosis);
  std::vector<LockedFinding> gone;
  std::vector<LockedFinding> added;
  for (const LockedFinding& f : lock.findings) {
    const bool known =
        whole ? std::find(now.begin(), now.end(), f) != now.end()
              : f.severity != "error" ||
                    std::any_of(now.begin(), now.end(),
                                [&](const LockedFinding& n) { return n.slug == f.slug; }) ||
                    std::any_of(checkpoint.allowed().begin(), checkpoint.allowed().end(),
                                [&](const Allowance& a) { return a.id == f.id; });
    if (!known) gone.push_back(f);
  }
  for (const LockedFinding& f : now)
    if (whole && std::find(lock.findings.begin(), lock.findings.end(), f) == lock.findings.end())
      added.push_back(f);
  if (gone.empty() && added.empty()) return;
  Finding f;
  f.id = "F7";
  f.slug = "verdict-since-lock";
  f.severity = whole ? Severity::kNote : Severity::kWarning;
  f.file = kLockName;
  f.message = fmt::format(
      "the model was locked with the verdict {} by sextant {}{}{}", quote_name(lock.verdict),
      quote_name(lock.version),
      listed(whole ? "found then and not now" : "found then, in bytes that are not read here",
             gone),
      listed("found now and not then", added));
  f.remedy = whole ? "--write-lock remembers what is found now" : "run doctor for the details";
  findings.add(std::move(f));
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
    SX_ASSIGN(const std::string quick, file_fingerprint(path));
    SX_ASSIGN(const std::string whole, sha256_file(path));
    std::error_code error;
    files.push_back({{"name", path.filename().string()},
                     {"bytes", static_cast<int64_t>(fs::file_size(path, error))},
                     {"fingerprint", quick},
                     {"sha256", whole}});
  }
  Json findings = Json::array();
  for (const LockedFinding& f : locked_findings(diagnosis))
    findings.push_back(
        {{"id", f.id}, {"slug", f.slug}, {"severity", f.severity}, {"count", f.count}});
  const Json lock{{"format", kLockFormat},
                  {"version", version},
                  {"verdict", verdict_name(diagnosis.verdict)},
                  {"findings", findings},
                  {"files", files}};
  return write_lock_file(checkpoint.root() / kLockName, dump_json(lock, 1) + "\n");
}

std::vector<Finding> check_lock(const Checkpoint& checkpoint, LockDepth depth,
                                const Diagnosis& now) {
  if (checkpoint.config() == nullptr) return {};  // one file: the lock is of a directory
  const fs::path path = checkpoint.root() / kLockName;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  FindingSet findings(checkpoint.allowed());
  const Result<Lock> lock = read_lock(path);
  if (!lock) {
    findings.add(changed(kLockName, lock.error().text));
    return findings.take();
  }
  for (Finding& difference : changed_files(checkpoint, *lock, depth))
    findings.add(std::move(difference));
  compare_verdicts(checkpoint, *lock, depth, now, findings);
  return findings.take();
}

}  // namespace sextant
