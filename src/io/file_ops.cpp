#include "io/file_ops.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <limits>

namespace sextant {

int FileOps::open(const char* path, int flags, unsigned mode) {
  return ::open(path, flags, static_cast<mode_t>(mode));
}
int64_t FileOps::pwrite(int fd, const void* data, size_t n_bytes, int64_t offset) {
  return ::pwrite(fd, data, n_bytes, offset);
}
int FileOps::reserve(int fd, int64_t n_bytes) { return ::fallocate(fd, 0, 0, n_bytes); }
int FileOps::fsync(int fd) { return ::fsync(fd); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::lock(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB); }
int FileOps::mkdir(const char* path, unsigned mode) {
  return ::mkdir(path, static_cast<mode_t>(mode));
}
int FileOps::rename(const char* from, const char* to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}
int FileOps::unlink(const char* path) { return ::unlink(path); }
int FileOps::rmdir(const char* path) { return ::rmdir(path); }

int64_t FileOps::available_bytes(const char* directory) {
  struct statvfs st {};
  if (::statvfs(directory, &st) != 0) return -1;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(st.f_bavail, st.f_frsize, &bytes))
    return std::numeric_limits<int64_t>::max();
  return bytes;
}

FileOps& FileOps::system() {
  static FileOps ops;
  return ops;
}

}  // namespace sextant
