#include "kernels/scratch.h"

#include <array>
#include <atomic>
#include <mutex>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace sextant {
namespace {

constexpr auto kSlots = static_cast<size_t>(Scratch::kCount);

std::mutex growing;  // held by who raises a size
std::array<std::atomic<int64_t>, kSlots> largest;
std::atomic<uint64_t> n_growths{0};

AlignedBuffer& own(size_t slot) {
  thread_local std::array<AlignedBuffer, kSlots> buffers;
  return buffers[slot];
}

void resize(AlignedBuffer& buffer, int64_t n_bytes) {
  buffer = AlignedBuffer();  // give the old one back first
  buffer = AlignedBuffer(n_bytes);
}

}  // namespace

void* scratch_bytes(Scratch slot, int64_t n_bytes) {
  const auto i = static_cast<size_t>(slot);
  AlignedBuffer& buffer = own(i);
  if (buffer.size() < n_bytes) {
    const std::lock_guard lock(growing);
    if (largest[i].load() < n_bytes) {
      largest[i].store(n_bytes);
      n_growths.fetch_add(1);
    }
    resize(buffer, largest[i].load());
  }
  return buffer.data();
}

uint64_t settle_scratch(ThreadPool& pool, uint64_t settled) {
  const uint64_t growths = n_growths.load();
  if (growths == settled) return settled;
  pool.each_worker([](int) {
    for (size_t i = 0; i < kSlots; ++i)
      if (own(i).size() < largest[i].load()) resize(own(i), largest[i].load());
  });
  return growths;
}

}  // namespace sextant
