#include "cli/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "cli/progress.h"
#include "cli/signals.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
TalkStyle g_style;

// False with errno set when not everything could be written.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string_view paint(std::string_view code) { return g_style.color ? code : std::string_view{}; }

void say_labelled(std::string_view color, std::string_view label, std::string_view text) {
  say_line(
      fmt::format("sextant: {}{}:{} {}", paint(color), label, paint("\x1b[0m"), one_line(text)));
}

}  // namespace

Output::~Output() { discard(); }

void Output::discard() {
  buffer_.clear();
  if (temporary_.empty()) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
  set_temporary_file("");
  temporary_.clear();
  fd_ = 1;
}

Status Output::open(const std::string& path) {
  if (path.empty() || path == "-") return {};
  path_ = path;
  const auto refuse = [&path] {
    return fail_at(at_file(path), Code::kInput,
                   "cannot write the output file {}: {}; choose another", path,
                   std::strerror(errno));
  };
  struct stat at {};
  if (::stat(path.c_str(), &at) == 0 && !S_ISREG(at.st_mode)) {
    // A device, a pipe: written into, never replaced.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return refuse();
    fd_ = fd;
    return {};
  }
  // Behind a link lies the file that is meant.
  std::error_code error;
  target_ = std::filesystem::weakly_canonical(path, error).string();
  if (error) {
    errno = error.value();
    return refuse();
  }
  temporary_ = target_ + ".XXXXXX";
  const int fd = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd < 0) {
    temporary_.clear();
    return refuse();
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, at.st_nlink != 0 ? at.st_mode & 07777 : 0666 & ~mask);
  fd_ = fd;
  set_temporary_file(temporary_);
  return {};
}

void Output::write(std::string_view text) {
  buffer_.append(text);
  if (buffer_.size() >= kBufferBytes) flush();
}

void Output::document(const Json& json) {
  write(json.dump(lines_ ? -1 : 2, ' ', false, Json::error_handler_t::replace));
  write("\n");
}

void Output::json_line(const Json& json) {
  write(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  write("\n");
  flush();
}

void Output::flush() {
  if (buffer_.empty()) return;
  if (!reader_gone_ && failure_.empty() && !write_all(fd_, buffer_)) {
    if (errno == EPIPE)
      reader_gone_ = true;
    else
      failure_ = std::strerror(errno);
  }
  buffer_.clear();
}

bool Output::is_terminal() const { return temporary_.empty() && ::isatty(fd_) == 1; }

Status Output::finish() {
  flush();
  const std::string name = path_.empty() ? "standard output" : path_;
  if (!temporary_.empty()) {
    if (failure_.empty() && (::fsync(fd_) != 0 && errno != EINVAL)) failure_ = std::strerror(errno);
    ::close(fd_);
    fd_ = 1;
    if (failure_.empty() && std::rename(temporary_.c_str(), target_.c_str()) != 0)
      failure_ = std::strerror(errno);
    if (!failure_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
    set_temporary_file("");
  }
  if (!failure_.empty())
    return fail_at(at_file(path_), Code::kResources,
                   "cannot write the results to {}: {}; nothing usable was written there", name,
                   failure_);
  return {};
}

void set_talk_style(const TalkStyle& style) { g_style = style; }
const TalkStyle& talk_style() { return g_style; }

void say_line(std::string_view line) {
  Progress::erase_shown();
  write_all(2, fmt::format("{}\n", line));
}

void say_warning(std::string_view text) { say_labelled("\x1b[33m", "warning", text); }
void say_note(std::string_view text) {
  if (!g_style.quiet) say_labelled("\x1b[36m", "note", text);
}

int error_exit_status(const Error& error) {
  if (error.code == Code::kCancelled && interrupt_signal() == SIGTERM) return 143;
  return exit_status(error.code);
}

Json error_json(const Error& error) {
  Json where = Json::object();
  if (!error.where.file.empty()) where["file"] = error.where.file;
  if (!error.where.tensor.empty()) where["tensor"] = error.where.tensor;
  if (!error.where.field.empty()) where["field"] = error.where.field;
  if (error.where.offset) where["offset"] = *error.where.offset;
  return Json{{"code", code_name(error.code)},
              {"status", error_exit_status(error)},
              {"message", error.text},
              {"where", where}};
}

int report_error(const Error& error, bool json, Output& out) {
  say_labelled("\x1b[31m", "error", error.text);
  if (g_style.verbose) {
    const Where& where = error.where;
    if (!where.file.empty()) say_line(fmt::format("  file: {}", one_line(where.file)));
    if (!where.tensor.empty()) say_line(fmt::format("  tensor: {}", one_line(where.tensor)));
    if (!where.field.empty()) say_line(fmt::format("  field: {}", one_line(where.field)));
    if (where.offset) say_line(fmt::format("  byte: {}", *where.offset));
    say_line(fmt::format("  code: {}", code_name(error.code)));
  }
  if (json) {
    out.discard();
    out.json_line(Json{{"error", error_json(error)}});  // one line: right for --json and for lines
  }
  return error_exit_status(error);
}

Status check_page_path(const std::string& page, const std::string& output) {
  if (page != "-" && (page.empty() || page != output)) return {};
  return fail_at(at_field("--html"), Code::kUsage,
                 "--html needs a file of its own; the report itself goes to standard output or -o");
}

Status write_page(const std::string& page, std::string_view text) {
  Output file;
  SX_TRY(file.open(page));
  file.write(text);
  return file.finish();
}

std::string one_line(std::string_view text) {
  std::string spaced(text);
  std::replace_if(
      spaced.begin(), spaced.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; },
      ' ');
  return escape_text(spaced);
}

}  // namespace sextant
