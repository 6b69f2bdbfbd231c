// Programmer errors. SX_CHECK(condition, "format", ...) stays on in release builds: it prints one
// line with the place and a request to report it, and ends the process with status 70. For anything
// a file, a user or a client can cause use Result (result.h).
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

namespace sextant {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

inline std::string check_message() { return {}; }
template <class... Args>
std::string check_message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace sextant

#define SX_CHECK(condition, ...)                                      \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::sextant::check_failed(__FILE__, __LINE__, #condition,         \
                              ::sextant::check_message(__VA_ARGS__)); \
  } while (false)
