#include "base/arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/checked.h"

namespace sextant {

void FreeDeleter::operator()(std::byte* p) const noexcept { std::free(p); }

AlignedBuffer::AlignedBuffer(int64_t n_bytes) : size_(n_bytes) {
  constexpr int64_t kHuge = int64_t{2} << 20;
  if (n_bytes == 0) return;
  SX_CHECK(n_bytes > 0, "buffer of {} bytes", n_bytes);
  const int64_t alignment = n_bytes >= 4 * kHuge ? kHuge : 64;
  void* p = std::aligned_alloc(static_cast<size_t>(alignment),
                               static_cast<size_t>(round_up(n_bytes, alignment)));
  if (p == nullptr) throw std::bad_alloc();
  if (alignment == kHuge) (void)::madvise(p, static_cast<size_t>(n_bytes), MADV_HUGEPAGE);
#if defined(NDEBUG)
  if (alignment != kHuge)
    std::memset(p, 0, static_cast<size_t>(n_bytes));  // large blocks are fresh zero pages
#else
  std::memset(p, 0xFF, static_cast<size_t>(n_bytes));
#endif
  data_.reset(static_cast<std::byte*>(p));
}

std::byte* Arena::take_bytes(int64_t n_bytes) {
  const int64_t begin = round_up(used_, 64);
  SX_CHECK(n_bytes >= 0 && begin + n_bytes <= buffer_.size(),
           "arena of {} bytes cannot give {} more after {}", buffer_.size(), n_bytes, used_);
  used_ = begin + n_bytes;
  return buffer_.data() + begin;
}

}  // namespace sextant
