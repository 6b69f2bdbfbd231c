// Ctrl-C and SIGTERM. A command that polls (run, quantize, bench, eval, compare) is told through
// interrupted() and ends by itself; for all others the first signal ends the process at once with
// 130 or 143, after the file that was being written under a temporary name is removed. While
// polling, a second signal ends the process the same way. SIGPIPE is ignored: writers see EPIPE.
#pragma once

#include <atomic>
#include <csignal>
#include <string>

namespace sextant {

void install_signal_handlers();
void set_temporary_file(
    const std::string& path);  // removed when a signal ends the process; "" for none

// From now on signals are only noted, until the guard ends.
class PollSignals {
 public:
  PollSignals();
  ~PollSignals();
  PollSignals(const PollSignals&) = delete;
  PollSignals& operator=(const PollSignals&) = delete;
};

bool interrupted();
int interrupt_signal();                     // SIGINT, SIGTERM, or 0
void clear_interrupt();                     // the chat goes on after a stopped answer
const std::atomic<bool>& interrupt_flag();  // for library calls that can be cancelled

}  // namespace sextant
