// The system calls of everything that writes a checkpoint, in one place, so that a test can fail or
// kill the n-th of them. The base class is the real system; results are those of the calls: -1 with
// errno set on failure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sextant {

class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual int64_t pwrite(int fd, const void* data, size_t n_bytes, int64_t offset);
  virtual int reserve(int fd, int64_t n_bytes);  // fallocate
  virtual int fsync(int fd);
  virtual int close(int fd);
  virtual int lock(int fd);  // flock, exclusive, without waiting
  virtual int mkdir(const char* path, unsigned mode);
  virtual int rename(const char* from, const char* to, unsigned flags);  // renameat2
  virtual int unlink(const char* path);
  virtual int rmdir(const char* path);
  virtual int64_t available_bytes(const char* directory);  // statvfs, for unprivileged users

  static FileOps& system();
};

}  // namespace sextant
