#include "cli/signals.h"

#include <unistd.h>

#include <cstring>

namespace sextant {
namespace {

std::atomic<int> g_signal{0};
std::atomic<bool> g_flag{false};
std::atomic<bool> g_polling{false};
char g_temporary[4096];
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Only what POSIX allows in a handler: atomics, unlink, _exit.
extern "C" void on_signal(int number) {
  const bool again = g_signal.exchange(number) != 0;
  g_flag.store(true);
  if (g_polling.load() && !again) return;
  if (g_temporary[0] != '\0') unlink(g_temporary);
  _exit(128 + number);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read from the terminal must return when Ctrl-C is pressed.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

void set_temporary_file(const std::string& path) {
  if (path.size() >= sizeof g_temporary) return;
  g_temporary[0] = '\0';
  std::memcpy(g_temporary, path.c_str(), path.size() + 1);
}

PollSignals::PollSignals() { g_polling.store(true); }
PollSignals::~PollSignals() { g_polling.store(false); }

bool interrupted() { return g_flag.load(std::memory_order_relaxed); }
int interrupt_signal() { return g_signal.load(std::memory_order_relaxed); }
void clear_interrupt() {
  g_signal.store(0);
  g_flag.store(false);
}
const std::atomic<bool>& interrupt_flag() { return g_flag; }

}  // namespace sextant
