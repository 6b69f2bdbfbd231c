// Views, not tensors: a matrix somebody else owns. Trivially copyable, the same on host and device.
// Strides in elements.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

namespace sextant {

template <class T>
struct Mat {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between rows

  Mat() = default;
  Mat(T* data_, int64_t rows_, int64_t cols_)
      : data(data_), rows(rows_), cols(cols_), stride(cols_) {}
  Mat(T* data_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Mat(Mat<U> other)
      : data(other.data),
        rows(other.rows),
        cols(other.cols),
        stride(other.stride) {}  // NOLINT: T to const T

  std::span<T> row(int64_t i) const { return {data + i * stride, static_cast<size_t>(cols)}; }
  T& at(int64_t i, int64_t j) const { return data[i * stride + j]; }
  Mat row_range(int64_t begin, int64_t n) const { return {data + begin * stride, n, cols, stride}; }
  Mat col_range(int64_t begin, int64_t n) const { return {data + begin, rows, n, stride}; }
};

}  // namespace sextant
