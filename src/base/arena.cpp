#include "base/arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/checked.h"

namespace sextant {

namespace {

constexpr int64_t kHuge = int64_t{2} << 20;

// Fresh zero pages, aligned to 2 MB by mapping more and giving the ends back.
std::byte* map_aligned(int64_t n_bytes) {
  const int64_t total = n_bytes + kHuge;
  void* p = ::mmap(nullptr, static_cast<size_t>(total), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto* base = static_cast<std::byte*>(p);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(base));
  const int64_t head = round_up(address, kHuge) - address;
  if (head > 0) (void)::munmap(base, static_cast<size_t>(head));
  if (head < kHuge) (void)::munmap(base + head + n_bytes, static_cast<size_t>(kHuge - head));
  (void)::madvise(base + head, static_cast<size_t>(n_bytes), MADV_HUGEPAGE);
  return base + head;
}

}  // namespace

void BufferDeleter::operator()(std::byte* p) const noexcept {
  if (mapped_bytes > 0) {
    (void)::munmap(p, static_cast<size_t>(mapped_bytes));
  } else {
    std::free(p);
  }
}

AlignedBuffer::AlignedBuffer(int64_t n_bytes) : size_(n_bytes) {
  if (n_bytes == 0) return;
  SX_CHECK(n_bytes > 0, "buffer of {} bytes", n_bytes);
  if (n_bytes >= 4 * kHuge) {
    const int64_t mapped_bytes = round_up(n_bytes, kHuge);
    data_ = std::unique_ptr<std::byte, BufferDeleter>(map_aligned(mapped_bytes),
                                                      BufferDeleter{mapped_bytes});
  } else {
    void* p = std::aligned_alloc(64, static_cast<size_t>(round_up(n_bytes, 64)));
    if (p == nullptr) throw std::bad_alloc();
    data_ = std::unique_ptr<std::byte, BufferDeleter>(static_cast<std::byte*>(p), BufferDeleter{});
    std::memset(p, 0, static_cast<size_t>(n_bytes));
  }
#if !defined(NDEBUG)
  std::memset(data_.get(), 0xFF, static_cast<size_t>(n_bytes));
#endif
}

std::byte* Arena::take_bytes(int64_t n_bytes) {
  const int64_t begin = round_up(used_, 64);
  SX_CHECK(n_bytes >= 0 && begin + n_bytes <= buffer_.size(),
           "arena of {} bytes cannot give {} more after {}", buffer_.size(), n_bytes, used_);
  used_ = begin + n_bytes;
  return buffer_.data() + begin;
}

}  // namespace sextant
