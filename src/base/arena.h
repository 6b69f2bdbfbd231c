// Buffers sized at start. An Arena is one 64-byte aligned block; take<T>(n) hands out aligned
// pieces until it is full (a defect). reset() reuses it. AlignedBuffer is a single such block with
// an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/view.h"

namespace sextant {

struct BufferDeleter {
  int64_t mapped_bytes = 0;  // 0: from the heap
  void operator()(std::byte* p) const noexcept;
};

// n_bytes of 64-byte aligned memory. Large blocks are mapped on their own, 2 MB aligned with a
// huge-page hint, and go back to the system when they die. Zero-filled, or 0xFF-filled in debug
// builds, so that a read before the first write shows as NaN.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t n_bytes);
  std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  std::unique_ptr<std::byte, BufferDeleter> data_;
  int64_t size_ = 0;
};

class Arena {
 public:
  Arena() = default;
  explicit Arena(int64_t n_bytes) : buffer_(n_bytes) {}
  template <class T>
  T* take(int64_t n) {
    return reinterpret_cast<T*>(take_bytes(n * static_cast<int64_t>(sizeof(T))));
  }
  template <class T>
  Mat<T> take_mat(int64_t rows, int64_t cols) {
    return Mat<T>(take<T>(rows * cols), rows, cols);
  }
  void reset() { used_ = 0; }
  int64_t used() const { return used_; }
  int64_t capacity() const { return buffer_.size(); }

 private:
  std::byte* take_bytes(int64_t n_bytes);
  AlignedBuffer buffer_;
  int64_t used_ = 0;
};

}  // namespace sextant
