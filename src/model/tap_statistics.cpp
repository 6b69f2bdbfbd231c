// Implements tap_statistics.h.
#include "model/tap_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace sextant {
namespace {

// The compiler's own vector types: the same operations on any CPU.
using Floats2 = float __attribute__((vector_size(8)));
using Doubles2 = double __attribute__((vector_size(16)));
using Words4 = int32_t __attribute__((vector_size(16)));

constexpr int32_t kMagnitudeBits = 0x7FFFFFFF;
constexpr int32_t kInfinityBits = 0x7F800000;

Words4 larger(Words4 most, const float* x) {
  Words4 bits;
  std::memcpy(&bits, x, sizeof(bits));
  bits &= kMagnitudeBits;
  return bits > most ? bits : most;
}

Doubles2 squares(const float* x) {
  Floats2 two;
  std::memcpy(&two, x, sizeof(two));
  const Doubles2 wide = __builtin_convertvector(two, Doubles2);
  return wide * wide;
}

// A row that holds something that is not finite: element by element.
RowStatistics measure_bad_row(std::span<const float> row) {
  RowStatistics out;
  for (size_t i = 0; i < row.size(); ++i) {
    const float x = row[i];
    if (std::isfinite(x)) {
      out.amax = std::max(out.amax, std::abs(x));
      out.sum_squares += double{x} * double{x};
      continue;
    }
    if (out.first_bad < 0) out.first_bad = static_cast<int64_t>(i);
    ++(std::isnan(x) ? out.n_nan : out.n_inf);
  }
  return out;
}

}  // namespace

// The magnitudes' bits order as the magnitudes do, NaN above infinity above all that is finite: one
// maximum tells both amax and whether anything is wrong.
RowStatistics measure_row(std::span<const float> row) {
  constexpr size_t kStep = 8;
  // Named one by one: as arrays they would live in memory, and each step wait for the one before.
  Words4 most_a = {};
  Words4 most_b = {};
  Doubles2 sum_a = {};
  Doubles2 sum_b = {};
  Doubles2 sum_c = {};
  Doubles2 sum_d = {};
  size_t i = 0;
  for (; i + kStep <= row.size(); i += kStep) {
    const float* x = row.data() + i;
    most_a = larger(most_a, x);
    most_b = larger(most_b, x + 4);
    sum_a += squares(x);
    sum_b += squares(x + 2);
    sum_c += squares(x + 4);
    sum_d += squares(x + 6);
  }
  const Words4 most = most_a > most_b ? most_a : most_b;
  int32_t amax = std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
  const Doubles2 pair = (sum_a + sum_b) + (sum_c + sum_d);
  double sum = pair[0] + pair[1];
  for (; i < row.size(); ++i) {
    amax = std::max(amax, std::bit_cast<int32_t>(row[i]) & kMagnitudeBits);
    sum += double{row[i]} * double{row[i]};
  }
  if (amax >= kInfinityBits) return measure_bad_row(row);
  RowStatistics out;
  out.amax = std::bit_cast<float>(amax);
  out.sum_squares = sum;
  return out;
}

double TapStatistics::rms() const {
  const int64_t n = n_rows * n_cols - n_bad();
  return n > 0 ? std::sqrt(sum_squares / static_cast<double>(n)) : 0;
}

void TapStatistics::add(const RowStatistics& row, int64_t n_row_cols) {
  ++n_rows;
  n_cols = n_row_cols;
  amax = std::max(amax, row.amax);
  sum_squares += row.sum_squares;
  n_nan += row.n_nan;
  n_inf += row.n_inf;
}

}  // namespace sextant
