#include "io/sigbus_guard.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "io/mapped_file.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr int kExitStatusInput = 3;  // exit_status(Code::kInput), fixed by the command line
constexpr size_t kPathBytes = 512;   // a longer path is shown by its end

struct Slot {
  std::atomic<uintptr_t> begin{0};  // 0: free or being filled
  std::atomic<uintptr_t> end{0};
  char path[kPathBytes] = {};
  size_t path_bytes = 0;
  Slot* next = nullptr;  // set before the slot is published
};

std::atomic<Slot*> g_slots{nullptr};
std::mutex g_mutex;  // registering and unregistering; the handler never takes it
struct sigaction g_previous {};

void put(char* line, size_t& n, std::string_view text) {
  std::memcpy(line + n, text.data(), text.size());
  n += text.size();
}

void put_number(char* line, size_t& n, uint64_t value) {
  char digits[20];
  int i = 0;
  do {
    digits[i++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (i > 0) line[n++] = digits[--i];
}

// Only what is allowed inside a signal handler: atomics, memcpy, write, _exit.
void on_sigbus(int signal_number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot* slot = g_slots.load(std::memory_order_acquire); slot != nullptr;
       slot = slot->next) {
    const uintptr_t begin = slot->begin.load(std::memory_order_acquire);
    const uintptr_t end = slot->end.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= end) continue;
    char line[kPathBytes + 512];
    size_t n = 0;
    put(line, n, "sextant: error: ");
    put(line, n, {slot->path, slot->path_bytes});
    put(line, n, ": expected ");
    put_number(line, n, end - begin);
    put(line, n, " bytes, found none behind byte offset ");
    put_number(line, n, address - begin);
    put(line, n,
        ": the file shrank or its storage failed while it was in use (SIGBUS); keep model files "
        "unchanged while they are used\n");
    ssize_t ignored = ::write(STDERR_FILENO, line, n);
    (void)ignored;
    ::_exit(kExitStatusInput);
  }
  if ((g_previous.sa_flags & SA_SIGINFO) != 0 && g_previous.sa_sigaction != nullptr) {
    g_previous.sa_sigaction(signal_number, info, context);
    return;
  }
  if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal_number);
    return;
  }
  ::signal(SIGBUS, SIG_DFL);  // the faulting access runs again and ends the process as usual
}

}  // namespace

void* sigbus_register(const void* begin, int64_t n_bytes, std::string_view path) {
  const std::lock_guard lock(g_mutex);
  Slot* slot = g_slots.load(std::memory_order_relaxed);
  while (slot != nullptr && slot->begin.load(std::memory_order_relaxed) != 0) slot = slot->next;
  const bool fresh = slot == nullptr;
  if (fresh) slot = new Slot;
  std::string shown = escape_text(path);
  if (shown.size() > kPathBytes) shown = shown.substr(shown.size() - kPathBytes);
  std::memcpy(slot->path, shown.data(), shown.size());
  slot->path_bytes = shown.size();
  const auto address = reinterpret_cast<uintptr_t>(begin);
  slot->end.store(address + static_cast<uintptr_t>(n_bytes), std::memory_order_release);
  slot->begin.store(address, std::memory_order_release);
  if (fresh) {
    slot->next = g_slots.load(std::memory_order_relaxed);
    g_slots.store(slot, std::memory_order_release);
  }
  return slot;
}

void sigbus_unregister(void* slot) {
  const std::lock_guard lock(g_mutex);
  static_cast<Slot*>(slot)->begin.store(0, std::memory_order_release);
}

void install_sigbus_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &g_previous);
  });
}

}  // namespace sextant
