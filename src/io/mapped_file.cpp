#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/quote.h"
#include "io/sigbus_guard.h"

namespace sextant {
namespace {

constexpr int kReadRetries = 3;

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO (named pipe)";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISSOCK(mode)) return "a socket";
  return "something that is no regular file";
}

int64_t mtime_ns(const struct stat& st) {
  return static_cast<int64_t>(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec;
}

tl::unexpected<Error> open_failed(const std::filesystem::path& path, int error) {
  const std::string name = escape_text(path.native());
  const Where where{path.string(), {}, {}, {}};
  struct stat st {};
  // A socket cannot be opened at all (ENXIO); what is there can still be told.
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    return fail_at(where, Code::kInput, "{}: expected a regular file, found {}", name,
                   kind_of(st.st_mode));
  if (error == ENOENT) {
    if (::lstat(path.c_str(), &st) == 0)
      return fail_at(where, Code::kInput,
                     "{}: expected a file, found a link to something that does not exist", name);
    return fail_at(where, Code::kInput, "{}: no such file", name);
  }
  const bool resources = error == EMFILE || error == ENFILE || error == ENOMEM;
  return fail_at(where, resources ? Code::kResources : Code::kInput, "{}: cannot be opened: {}",
                 name, errno_text(error));
}

int64_t page_bytes() {
  static const int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

}  // namespace

std::string errno_text(int error) {
  const char* name = ::strerrorname_np(error);
  const char* text = ::strerrordesc_np(error);
  return fmt::format("{} ({})", text != nullptr ? text : "unknown error",
                     name != nullptr ? std::string(name) : std::to_string(error));
}

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  if (path.native().find('\0') != std::string::npos)
    return fail(Code::kInput, "{}: a file name cannot hold a NUL character",
                escape_text(path.native()));
  int fd = -1;
  do {  // O_NONBLOCK: a FIFO without a writer would make open wait for ever
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return open_failed(path, errno);
  InputFile file;
  file.fd_ = fd;
  file.path_ = path;
  struct stat st {};
  if (::fstat(fd, &st) != 0) return open_failed(path, errno);
  if (!S_ISREG(st.st_mode))
    return fail_at({path.string(), {}, {}, {}}, Code::kInput,
                   "{}: expected a regular file, found {}", escape_text(path.native()),
                   kind_of(st.st_mode));
  file.size_ = st.st_size;
  file.mtime_ns_ = mtime_ns(st);
  file.device_ = st.st_dev;
  file.inode_ = st.st_ino;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept { *this = std::move(other); }

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(mtime_ns_, other.mtime_ns_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  std::swap(path_, other.path_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  int retries = 0;
  while (done < out.size()) {
    const int64_t at = offset + static_cast<int64_t>(done);
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, at);
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    const int error = n < 0 ? errno : 0;
    if (error == EINTR) continue;
    if ((error == EIO || error == ESTALE) && retries++ < kReadRetries) continue;
    const Where where{path_.string(), {}, {}, at};
    const std::string name = escape_text(path_.native());
    if (n == 0)
      return fail_at(where, Code::kInput,
                     "{}: expected {} bytes at byte offset {}, found the end of the file after {}: "
                     "it shrank while it was read",
                     name, out.size(), offset, done);
    return fail_at(where, Code::kInput, "{}: reading {} bytes at byte offset {} failed: {}", name,
                   out.size() - done, at, errno_text(error));
  }
  return {};
}

Status InputFile::check_unchanged() const {
  struct stat st {};
  const std::string name = escape_text(path_.native());
  if (::stat(path_.c_str(), &st) != 0)
    return fail_at({path_.string(), {}, {}, {}}, Code::kInput,
                   "{}: the file changed while it was used: {}", name, errno_text(errno));
  if (st.st_size != size_)
    return fail_at({path_.string(), {}, {}, {}}, Code::kInput,
                   "{}: the file changed while it was used: expected {} bytes, found {}", name,
                   size_, static_cast<int64_t>(st.st_size));
  if (st.st_dev != device_ || st.st_ino != inode_ || mtime_ns(st) != mtime_ns_)
    return fail_at({path_.string(), {}, {}, {}}, Code::kInput,
                   "{}: the file was replaced or written to while it was used", name);
  return {};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  SX_ASSIGN(InputFile file, InputFile::open(path));
  return map(std::move(file));
}

Result<MappedFile> MappedFile::map(InputFile file) {
  MappedFile mapped(std::move(file));
  const int64_t size = mapped.file_.size();
  if (size == 0) return mapped;
  void* p = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, mapped.file_.fd(), 0);
  if (p == MAP_FAILED) {
    const int error = errno;
    return fail_at({mapped.path().string(), {}, {}, {}},
                   error == ENOMEM || error == EAGAIN ? Code::kResources : Code::kInput,
                   "{}: mapping {} bytes failed: {}", escape_text(mapped.path().native()), size,
                   errno_text(error));
  }
  mapped.data_ = static_cast<const std::byte*>(p);
  mapped.guard_slot_ = sigbus_register(p, size, mapped.path().native());
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      guard_slot_(std::exchange(other.guard_slot_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(guard_slot_, other.guard_slot_);
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() noexcept {
  if (data_ == nullptr) return;
  sigbus_unregister(guard_slot_);
  ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(file_.size()));
  data_ = nullptr;
}

void MappedFile::release(int64_t begin, int64_t end) const {
  const int64_t page = page_bytes();
  begin = (std::max<int64_t>(begin, 0) + page - 1) / page * page;
  // The last page of the file ends with the file.
  end = end >= file_.size() ? (file_.size() + page - 1) / page * page : end / page * page;
  if (data_ == nullptr || begin >= end) return;
  (void)::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin),
                  MADV_DONTNEED);
}

void MappedFile::will_need(int64_t begin, int64_t end) const {
  const int64_t page = page_bytes();
  begin = std::max<int64_t>(begin, 0) / page * page;
  end = std::min(end, file_.size());
  if (data_ == nullptr || begin >= end) return;
  (void)::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin),
                  MADV_WILLNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  SX_ASSIGN(const InputFile file, InputFile::open(path));
  if (file.size() > max_bytes)
    return fail_at({path.string(), {}, {}, {}}, Code::kInput,
                   "{}: too large: expected at most {} bytes, found {}", escape_text(path.native()),
                   max_bytes, file.size());
  std::string text(static_cast<size_t>(file.size()), '\0');
  SX_TRY(file.read_at(0, std::as_writable_bytes(std::span<char>(text))));
  return text;
}

}  // namespace sextant
