// Checked arithmetic on numbers that come from a file or a client, and the one checked narrowing
// cast.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace sextant {

// nullopt on overflow.
[[nodiscard]] inline std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
[[nodiscard]] inline std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
// The product of a shape; a zero anywhere still needs every partial product to fit. nullopt on
// overflow or a negative extent.
[[nodiscard]] inline std::optional<int64_t> checked_product(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    const auto next = checked_mul(product, extent);
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

// part / all; 0 of nothing.
[[nodiscard]] inline double share_of(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

// A narrowing that must fit: a defect of ours otherwise.
template <class To, class From>
[[nodiscard]] constexpr To narrow(From from) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  const To to = static_cast<To>(from);
  SX_CHECK(static_cast<From>(to) == from && ((to < To{}) == (from < From{})), "narrowing {}", from);
  return to;
}

[[nodiscard]] constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
[[nodiscard]] constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace sextant
