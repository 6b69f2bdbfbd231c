#include "kernels/scratch.h"

#include <algorithm>
#include <array>

#include "base/arena.h"

namespace sextant {

void* scratch_bytes(Scratch slot, int64_t n_bytes) {
  thread_local std::array<AlignedBuffer, static_cast<size_t>(Scratch::kCount)> buffers;
  AlignedBuffer& buffer = buffers[static_cast<size_t>(slot)];
  if (buffer.size() < n_bytes) {
    const int64_t size = std::max(n_bytes, buffer.size() * 2);
    buffer = AlignedBuffer();  // give the old one back first
    buffer = AlignedBuffer(size);
  }
  return buffer.data();
}

}  // namespace sextant
