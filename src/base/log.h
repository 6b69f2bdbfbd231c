// Messages for people who asked for them. The library never prints results; it may log through
// this, and a face decides where it goes (cli: standard error, by --log-level). Off until a face
// turns it on.
#pragma once

#include <string_view>

#include <fmt/core.h>

namespace sextant {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);
LogLevel log_level();
void log_line(LogLevel level, std::string_view line);  // to standard error, with time and level

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sextant
