// Reading files. InputFile: an open regular file of known size, read at offsets. MappedFile: the
// same, mapped. Opening never blocks (FIFOs, devices, sockets and directories are refused by kind)
// and the size is known before anything is mapped, so a reader can compare it with a header first.
//
// A mapping of a file that shrinks, or whose storage fails, raises SIGBUS in whoever touches it.
// install_sigbus_guard() turns that into one named line on standard error and exit status 3; a
// process that calls it must not rely on SIGBUS otherwise. Signals outside our mappings go to the
// handler that was there before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sextant {

class InputFile {
 public:
  static Result<InputFile> open(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int fd() const { return fd_; }
  // Fills all of out from offset; short reads and interruptions are continued, EIO and ESTALE tried
  // again a few times. The error names the file, the offset and errno. Any thread.
  Status read_at(int64_t offset, std::span<std::byte> out) const;
  // That size, modification time and identity are still those of open(): for a conversion's end.
  Status check_unchanged() const;

 private:
  InputFile() = default;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t mtime_ns_ = 0;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  std::filesystem::path path_;
};

class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  static Result<MappedFile> map(InputFile file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(file_.size())}; }
  const std::filesystem::path& path() const { return file_.path(); }
  const InputFile& input() const { return file_; }
  // The resident pages that lie wholly inside the range are given back to the system (they can be
  // read again). For the loader after a repack.
  void release(int64_t begin, int64_t end) const;
  // Asks the system to read the range ahead.
  void will_need(int64_t begin, int64_t end) const;

 private:
  explicit MappedFile(InputFile file) : file_(std::move(file)) {}
  void unmap() noexcept;
  InputFile file_;
  const std::byte* data_ = nullptr;  // nullptr for an empty file
  void* guard_slot_ = nullptr;       // the guard's record of this mapping
};

// Process-wide, idempotent, for a face to call once at start.
void install_sigbus_guard();

// The whole of a file of at most max_bytes, as text.
Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes);

// "No space left on device (ENOSPC)"
std::string errno_text(int error);

}  // namespace sextant
