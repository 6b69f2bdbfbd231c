// Scratch memory of the kernels: a few buffers a thread, kept from call to call. A buffer's content
// is undefined; it lives until the same thread asks for the same slot again or settle_scratch
// (ops.h) runs. Sizes asked for depend on widths (k, head_dim), never on the number of rows, so
// that a longer prompt does not grow them.
#pragma once

#include <cstdint>

namespace sextant {

enum class Scratch : uint8_t { kInput, kPanel, kScales, kTotals, kAttention, kCount };

// n_bytes of 64-byte aligned memory of the calling thread.
void* scratch_bytes(Scratch slot, int64_t n_bytes);

template <class T>
T* scratch(Scratch slot, int64_t n) {
  return static_cast<T*>(scratch_bytes(slot, n * static_cast<int64_t>(sizeof(T))));
}

}  // namespace sextant
