// A progress bar on standard error with rate and remaining time: only on a terminal, never with
// --quiet, redrawn at most ten times a second. Messages erase it first (Progress::erase_shown), so
// they never share its line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sextant {

class Progress {
 public:
  enum class Unit : uint8_t { kBytes, kTokens, kItems };

  explicit Progress(std::string_view label, Unit unit = Unit::kItems);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // done of total (total <= 0: not known); detail: what is being worked on.
  void update(int64_t done, int64_t total, std::string_view detail = {});
  static void erase_shown();
  static bool enabled();

 private:
  std::string label_;
  Unit unit_;
  int64_t start_us_;
  int64_t drawn_us_ = 0;
};

// The line of a bar, for tests: label, bar, share, done of total, rate, remaining time.
std::string progress_line(std::string_view label, Progress::Unit unit, int64_t done, int64_t total,
                          double seconds, std::string_view detail, int width);

}  // namespace sextant
