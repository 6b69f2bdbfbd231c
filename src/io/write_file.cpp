// Implements write_file.h.
#include "io/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "io/mapped_file.h"
#include "io/quote.h"

namespace sextant {

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
  const std::string temporary = path.string() + ".tmp";
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  bool done = fd >= 0;
  for (size_t at = 0; done && at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    done = n > 0 || (n < 0 && errno == EINTR);
    if (n > 0) at += static_cast<size_t>(n);
  }
  done = done && ::fsync(fd) == 0;
  const int written = errno;
  if (fd >= 0) ::close(fd);
  errno = written;
  done = done && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (done) return {};
  const int error = errno;
  if (fd >= 0) ::unlink(temporary.c_str());
  return fail_at({path.string(), {}, {}, {}},
                 error == ENOSPC || error == EDQUOT ? Code::kResources : Code::kInput,
                 "{} cannot be written: {}", quote_name(path.string(), 400), errno_text(error));
}

}  // namespace sextant
