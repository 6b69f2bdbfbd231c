#include "io/atomic_dir.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "io/mapped_file.h"
#include "io/quote.h"

namespace sextant {

namespace fs = std::filesystem;

// What the directory and its files share.
struct OutputFile::Target {
  FileOps* ops = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  fs::path destination;
  fs::path temporary;
  std::string shown;  // destination, as messages show it
  int64_t needed_bytes = 0;
  bool force = false;
  int lock_fd = -1;     // the temporary directory, locked while we live
  bool exists = false;  // the temporary directory is there and ours
  std::atomic<int> n_unfinished{0};
};

namespace {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;  // one call; Linux writes at most 2 GB anyway
constexpr int64_t kCopyBytes = int64_t{1} << 20;
constexpr size_t kMaxStemBytes = 180;  // of the 255 a name may have
constexpr int kNameTries = 1000;

// Disk full, quota and file-size limit are one kind, with advice of its own.
bool is_space_error(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

// A destination that cannot be written is kResources, whatever the reason; only EFAULT speaks of
// the source: the bytes came from a mapping whose file shrank.
tl::unexpected<Error> call_failed(std::string_view shown, int64_t needed_bytes,
                                  std::string_view what, int error,
                                  std::optional<int64_t> offset = {}) {
  std::string text = fmt::format("{}: {} failed: {}", shown, what, errno_text(error));
  if (is_space_error(error)) {
    if (needed_bytes > 0) text += fmt::format("; {} bytes are needed in all", needed_bytes);
    text += "; free space or choose another destination; nothing was left behind";
  }
  if (error == EFAULT) text += "; a source file shrank while it was read";
  return tl::unexpected<Error>(Error{error == EFAULT ? Code::kInput : Code::kResources,
                                     std::move(text),
                                     {std::string(shown), {}, {}, offset}});
}

int open_retry(FileOps& ops, const fs::path& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = ops.open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

int fsync_retry(FileOps& ops, int fd) {
  int result = -1;
  do {
    result = ops.fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result;
}

// The name of a temporary directory is ".NAME.sextant-tmp-PID-N".
std::string temporary_prefix(const fs::path& destination) {
  return "." + destination.filename().native().substr(0, kMaxStemBytes) + ".sextant-tmp-";
}

// Removes a tree without following links. An explicit stack, children before parents; the first
// failure ends it. 0 or errno.
int remove_tree(FileOps& ops, const fs::path& root) {
  std::vector<fs::path> stack = {root};
  while (!stack.empty()) {
    const fs::path dir = stack.back();
    bool has_directory = false;
    std::error_code error;
    fs::directory_iterator it(dir, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      std::error_code status_error;
      if (it->symlink_status(status_error).type() == fs::file_type::directory) {
        stack.push_back(it->path());
        has_directory = true;
      } else if (ops.unlink(it->path().c_str()) != 0 && errno != ENOENT) {
        return errno;
      }
    }
    if (error && error.value() != ENOENT) return error.value();
    if (has_directory) continue;
    if (ops.rmdir(dir.c_str()) != 0 && errno != ENOENT) return errno;
    stack.pop_back();
  }
  return 0;
}

// Temporary directories of this destination whose owner is dead: nobody holds the lock that a live
// owner holds on them.
void remove_stale(FileOps& ops, const fs::path& destination) {
  const std::string prefix = temporary_prefix(destination);
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(destination.parent_path(), error);
       !error && it != fs::directory_iterator(); it.increment(error))
    if (it->path().filename().native().starts_with(prefix)) found.push_back(it->path());
  for (const fs::path& path : found) {
    const int fd = open_retry(ops, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0) continue;
    if (ops.lock(fd) == 0) (void)remove_tree(ops, path);
    ops.close(fd);
  }
}

bool same_inode(int fd, const fs::path& path) {
  struct stat by_fd {};
  struct stat by_path {};
  return ::fstat(fd, &by_fd) == 0 && ::lstat(path.c_str(), &by_path) == 0 &&
         by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino;
}

// Whether a is b or a directory above it; both canonical.
bool contains(const fs::path& a, const fs::path& b) {
  auto it = b.begin();
  for (const fs::path& part : a) {
    if (part.empty()) continue;  // a trailing slash
    if (it == b.end() || *it != part) return false;
    ++it;
  }
  return true;
}

Result<fs::path> resolve(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error)
    return fail(Code::kInput, "{}: cannot be resolved: {}", escape_text(path.native()),
                error.message());
  if (resolved.filename().empty() && resolved.has_parent_path() && resolved != "/")
    resolved = resolved.parent_path();
  return resolved;
}

// What is at the destination may be replaced only when asked for, and never what cannot be meant.
Status check_existing(const fs::path& destination, const std::string& shown, bool force) {
  struct stat st {};
  if (::lstat(destination.c_str(), &st) != 0) return {};
  if (!S_ISDIR(st.st_mode))
    return fail(Code::kUsage, "{}: expected no file there or a directory, found a file or link",
                shown);
  if (!force)
    return fail(Code::kUsage,
                "{}: the destination exists; choose another or replace it with --force", shown);
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (destination == "/" || (!error && contains(destination, here)))
    return fail(Code::kUsage,
                "{}: expected a destination that can be replaced, found the current directory or "
                "one above it",
                shown);
  return {};
}

Status check_space(FileOps& ops, const fs::path& parent, const std::string& shown,
                   int64_t needed_bytes) {
  const int64_t available = ops.available_bytes(parent.c_str());
  if (available < 0) return call_failed(shown, needed_bytes, "asking for the free space", errno);
  if (needed_bytes > available)
    return fail(Code::kResources,
                "{}: not enough disk space: {} bytes are needed, {} are available; free space or "
                "choose another destination",
                shown, needed_bytes, available);
  return {};
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(fd_, other.fd_);
  std::swap(shown_, other.shown_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) target_->ops->close(fd_);
}

Status OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (target_->cancel != nullptr && target_->cancel->load(std::memory_order_relaxed))
      return fail(Code::kCancelled, "{}: interrupted; nothing was left behind", target_->shown);
    const size_t n = std::min(bytes.size(), kMaxWriteBytes);
    const int64_t written = target_->ops->pwrite(fd_, bytes.data(), n, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return call_failed(shown_, target_->needed_bytes,
                         fmt::format("writing {} bytes at byte offset {}", bytes.size(), offset),
                         written < 0 ? errno : EIO, offset);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

Status OutputFile::reserve(int64_t n_bytes) {
  if (n_bytes <= 0) return {};
  int result = -1;
  do {
    result = target_->ops->reserve(fd_, n_bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return {};
  return call_failed(shown_, target_->needed_bytes, fmt::format("reserving {} bytes", n_bytes),
                     errno);
}

Status OutputFile::finish() {
  SX_CHECK(fd_ >= 0, "{} is finished already", shown_);
  if (fsync_retry(*target_->ops, fd_) != 0)
    return call_failed(shown_, target_->needed_bytes, "syncing it to disk", errno);
  const int fd = std::exchange(fd_, -1);
  // After an interrupted close the descriptor is gone on Linux; the data is synced already.
  if (target_->ops->close(fd) != 0 && errno != EINTR)
    return call_failed(shown_, target_->needed_bytes, "closing it", errno);
  target_->n_unfinished.fetch_sub(1, std::memory_order_acq_rel);
  return {};
}

AtomicDir::AtomicDir(std::shared_ptr<OutputFile::Target> target) : target_(std::move(target)) {}
AtomicDir::AtomicDir(AtomicDir&& other) noexcept = default;
AtomicDir& AtomicDir::operator=(AtomicDir&& other) noexcept {
  std::swap(target_, other.target_);
  return *this;
}
AtomicDir::~AtomicDir() { abandon(); }

const fs::path& AtomicDir::destination() const { return target_->destination; }
const fs::path& AtomicDir::temporary() const { return target_->temporary; }

Result<AtomicDir> AtomicDir::create(const fs::path& destination, const AtomicDirOptions& options) {
  auto target = std::make_shared<OutputFile::Target>();
  target->ops = options.ops != nullptr ? options.ops : &FileOps::system();
  target->cancel = options.cancel;
  target->needed_bytes = options.needed_bytes;
  target->force = options.force;
  target->shown = escape_text(destination.native());
  SX_ASSIGN(target->destination, resolve(destination));
  const fs::path parent = target->destination.parent_path();
  std::error_code error;
  if (!fs::is_directory(parent, error))
    return fail(Code::kInput,
                "{}: expected an existing directory to create it in, found none at {}",
                target->shown, escape_text(parent.native()));
  SX_TRY(check_existing(target->destination, target->shown, options.force));
  FileOps& ops = *target->ops;
  remove_stale(ops, target->destination);
  SX_TRY(check_space(ops, parent, target->shown, options.needed_bytes));
  // Beyond the limit on file sizes a write shall fail with EFBIG, not end the process.
  struct sigaction action {};
  if (::sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
    ::signal(SIGXFSZ, SIG_IGN);

  AtomicDir dir(target);
  const std::string prefix = temporary_prefix(target->destination) + std::to_string(::getpid());
  for (int i = 0; i < kNameTries; ++i) {
    target->temporary = parent / fmt::format("{}-{}", prefix, i);
    if (ops.mkdir(target->temporary.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return call_failed(target->shown, options.needed_bytes, "creating a temporary directory",
                         errno);
    }
    target->exists = true;
    target->lock_fd = open_retry(ops, target->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (target->lock_fd < 0)
      return call_failed(target->shown, options.needed_bytes, "opening the temporary directory",
                         errno);
    // Where locks do not exist nobody can take ours for stale either. Otherwise somebody who looks
    // for stale ones may have been faster than us and removed it: take another name.
    const bool locked = ops.lock(target->lock_fd) == 0 || errno != EWOULDBLOCK;
    if (locked && same_inode(target->lock_fd, target->temporary)) return dir;
    ops.close(std::exchange(target->lock_fd, -1));
    target->exists = false;
  }
  return fail(Code::kResources, "{}: no free name for a temporary directory after {} tries",
              target->shown, kNameTries);
}

Result<OutputFile> AtomicDir::create_file(std::string_view name) {
  SX_CHECK(!name.empty() && name != "." && name != ".." &&
               name.find('/') == std::string_view::npos &&
               name.find('\0') == std::string_view::npos,
           "file name {}", quote_name(name));
  OutputFile file;
  file.target_ = target_;
  file.shown_ = target_->shown + "/" + escape_text(name);
  const int fd = open_retry(*target_->ops, target_->temporary / name,
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  if (fd < 0) return call_failed(file.shown_, target_->needed_bytes, "creating it", errno);
  file.fd_ = fd;
  target_->n_unfinished.fetch_add(1, std::memory_order_acq_rel);
  return file;
}

Status AtomicDir::write_file(std::string_view name, std::string_view text) {
  SX_ASSIGN(OutputFile file, create_file(name));
  SX_TRY(file.write_at(0, std::as_bytes(std::span<const char>(text))));
  return file.finish();
}

Status AtomicDir::copy_file(const fs::path& source, std::string_view name) {
  SX_ASSIGN(const InputFile input, InputFile::open(source));
  SX_ASSIGN(OutputFile file, create_file(name));
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(input.size(), kCopyBytes)));
  for (int64_t at = 0; at < input.size(); at += kCopyBytes) {
    const std::span piece(buffer.data(),
                          static_cast<size_t>(std::min(kCopyBytes, input.size() - at)));
    SX_TRY(input.read_at(at, piece));
    SX_TRY(file.write_at(at, piece));
  }
  SX_TRY(input.check_unchanged());
  return file.finish();
}

namespace {

// Puts the temporary directory in the destination's place; the old one, if there was one, is then
// at the temporary name. 0 or errno.
int put_in_place(FileOps& ops, const fs::path& temporary, const fs::path& destination, bool force,
                 bool* exchanged) {
  *exchanged = false;
  if (ops.rename(temporary.c_str(), destination.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno == EEXIST && force) {
    *exchanged = true;
    return ops.rename(temporary.c_str(), destination.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
  }
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without the flag. A plain rename replaces an empty directory at most, so nothing
  // can be lost; over anything else it fails.
  struct stat st {};
  if (::lstat(destination.c_str(), &st) == 0) return force ? EOPNOTSUPP : EEXIST;
  return ops.rename(temporary.c_str(), destination.c_str(), 0) == 0 ? 0 : errno;
}

}  // namespace

Status AtomicDir::commit() {
  OutputFile::Target& t = *target_;
  SX_CHECK(t.exists, "{} is committed already", t.shown);
  SX_CHECK(t.n_unfinished.load() == 0, "{} has {} unfinished files", t.shown,
           t.n_unfinished.load());
  if (t.cancel != nullptr && t.cancel->load(std::memory_order_relaxed))
    return fail(Code::kCancelled, "{}: interrupted; nothing was left behind", t.shown);
  FileOps& ops = *t.ops;
  if (fsync_retry(ops, t.lock_fd) != 0)
    return call_failed(t.shown, t.needed_bytes, "syncing the directory to disk", errno);
  // Opened first, so that after the rename as little as possible can fail.
  const fs::path parent = t.destination.parent_path();
  const int parent_fd = open_retry(ops, parent, O_RDONLY | O_DIRECTORY, 0);
  if (parent_fd < 0)
    return call_failed(t.shown, t.needed_bytes, "opening the directory above it", errno);

  bool exchanged = false;
  const int error = put_in_place(ops, t.temporary, t.destination, t.force, &exchanged);
  if (error != 0) {
    ops.close(parent_fd);
    if (error == EEXIST || error == ENOTEMPTY)
      return fail(Code::kUsage,
                  "{}: the destination appeared while it was being written; choose another or "
                  "replace it with --force",
                  t.shown);
    if (error == EOPNOTSUPP || (exchanged && (error == EINVAL || error == ENOSYS)))
      return fail(Code::kUnsupported,
                  "{}: this file system cannot replace the existing destination in one step ({}); "
                  "remove it first or choose another",
                  t.shown, errno_text(error));
    return call_failed(t.shown, t.needed_bytes, "renaming the finished directory into place",
                       error);
  }
  t.exists = false;
  const int sync_error = fsync_retry(ops, parent_fd) != 0 ? errno : 0;
  ops.close(parent_fd);
  if (exchanged) {
    if (const int remove_error = remove_tree(ops, t.temporary); remove_error != 0)
      log(LogLevel::kWarning, "{}: the old directory could not be removed: {}",
          escape_text(t.temporary.native()), errno_text(remove_error));
  }
  ops.close(std::exchange(t.lock_fd, -1));
  if (sync_error != 0)
    return call_failed(t.shown, t.needed_bytes,
                       "the new directory is in place, but syncing the one above it to disk",
                       sync_error);
  return {};
}

void AtomicDir::abandon() noexcept {
  if (target_ == nullptr) return;
  if (std::exchange(target_->exists, false)) {
    if (const int error = remove_tree(*target_->ops, target_->temporary); error != 0)
      log(LogLevel::kWarning, "{}: the temporary directory could not be removed: {}",
          escape_text(target_->temporary.native()), errno_text(error));
  }
  if (target_->lock_fd >= 0) target_->ops->close(std::exchange(target_->lock_fd, -1));
}

Status check_destination(const fs::path& source, const fs::path& destination) {
  SX_ASSIGN(const fs::path from, resolve(source));
  SX_ASSIGN(const fs::path to, resolve(destination));
  std::error_code error;
  const bool same = from == to || fs::equivalent(from, to, error);
  if (!same && !contains(to, from)) return {};
  return fail(
      Code::kUsage,
      "{}: expected a destination other than the source, found {}; choose another directory",
      escape_text(destination.native()),
      same ? "the source itself" : "a directory that holds the source");
}

}  // namespace sextant
