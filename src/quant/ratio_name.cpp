// Implements ratio_name.h.
#include "quant/ratio_name.h"

#include <cmath>

#include <fmt/format.h>

namespace sextant {
namespace {

constexpr double kRatioTolerance = 0.02;  // healthy NVFP4 is within 1 % of its source's rms

bool is_close(double ratio, double expected) {
  return std::abs(ratio / expected - 1) <= kRatioTolerance;
}

}  // namespace

std::string ratio_name(double ratio, std::optional<float> g) {
  if (!std::isfinite(ratio) || ratio <= 0 || is_close(ratio, 1)) return {};
  // A multiplier is below 0.05 and a divisor above 5 (nvfp4.md 3.1.2); in between, g^2 could be any
  // factor.
  if (g && *g > 0 && (*g < 0.05F || *g > 5.0F)) {
    const double g2 = static_cast<double>(*g) * static_cast<double>(*g);
    if (is_close(ratio, g2)) return "g^2";
    if (is_close(ratio, 1 / g2)) return "1/g^2";
  }
  constexpr double kFactors[] = {1.25, 1.5, 1.75, 3, 6, 448, 2688};
  const auto named = [&](double factor) -> std::string {
    if (is_close(ratio, factor)) return fmt::format("{}", factor);
    return is_close(ratio, 1 / factor) ? fmt::format("1/{}", factor) : std::string();
  };
  for (const double factor : kFactors)
    if (std::string name = named(factor); !name.empty()) return name;
  for (double factor = 2; factor <= 65536; factor *= 2)
    if (std::string name = named(factor); !name.empty()) return name;
  return {};
}

}  // namespace sextant
