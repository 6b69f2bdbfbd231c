#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace sextant {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr,
               "sextant: defect: %s:%d: %s does not hold%s%s; please report it with the command "
               "that led here\n",
               file, line, condition, message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
#if defined(__SANITIZE_ADDRESS__)
  std::abort();  // a stack trace is worth more than the status
#else
  std::_Exit(70);
#endif
}

}  // namespace sextant
