#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>

#include "base/clock.h"
#include "cli/format.h"
#include "cli/output.h"

namespace sextant {
namespace {

constexpr int64_t kRedrawUs = 100'000;
bool g_shown = false;

int terminal_width() {
  winsize size = {};
  if (ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 80;
}

std::string amount(Progress::Unit unit, double value) {
  if (unit == Progress::Unit::kBytes) return format_bytes(value);
  return fmt::format("{:.0f}", value);
}

}  // namespace

bool Progress::enabled() {
  static const bool terminal = [] {
    const char* term = std::getenv("TERM");
    return isatty(2) == 1 && !(term != nullptr && std::string_view(term) == "dumb");
  }();
  return terminal && !talk_style().quiet;
}

Progress::Progress(std::string_view label, Unit unit)
    : label_(label), unit_(unit), start_us_(now_us()) {}

Progress::~Progress() { erase_shown(); }

void Progress::update(int64_t done, int64_t total, std::string_view detail) {
  if (!enabled()) return;
  const int64_t now = now_us();
  if (drawn_us_ != 0 && now - drawn_us_ < kRedrawUs) return;
  drawn_us_ = now;
  const std::string line =
      progress_line(label_, unit_, done, total, seconds_since(start_us_), detail, terminal_width());
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
  g_shown = true;
}

void Progress::erase_shown() {
  if (!g_shown) return;
  g_shown = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

std::string progress_line(std::string_view label, Progress::Unit unit, int64_t done, int64_t total,
                          double seconds, std::string_view detail, int width) {
  std::string line(label);
  const auto done_d = static_cast<double>(done);
  const auto total_d = static_cast<double>(total);
  if (total > 0) {
    constexpr int kCells = 24;
    const double share = std::clamp(done_d / total_d, 0.0, 1.0);
    const int full = static_cast<int>(share * kCells);
    line += fmt::format(" [{}{}] {:3.0f} %  {} of {}", std::string(static_cast<size_t>(full), '#'),
                        std::string(static_cast<size_t>(kCells - full), '.'), share * 100,
                        amount(unit, done_d), amount(unit, total_d));
  } else if (done > 0) {
    line += fmt::format(" {}", amount(unit, done_d));
  }
  if (seconds > 0 && done > 0) {
    const double rate = done_d / seconds;
    if (unit == Progress::Unit::kBytes) line += fmt::format("  {}/s", format_bytes(rate));
    if (unit == Progress::Unit::kTokens) line += fmt::format("  {:.0f} tokens/s", rate);
    if (total > done) line += fmt::format("  {} left", format_seconds((total_d - done_d) / rate));
  }
  if (!detail.empty()) line += fmt::format("  {}", detail);
  if (static_cast<int>(line.size()) >= width)
    line.resize(static_cast<size_t>(std::max(1, width - 1)));
  return line;
}

}  // namespace sextant
