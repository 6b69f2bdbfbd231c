// The histogram of the 16 codes beside what a Gaussian gives.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "doctor/report_charts.h"
#include "doctor/report_svg.h"
#include "quant/e2m1.h"

namespace sextant {
namespace {

// Shares of 0, 0.5, ..., 6 in Gaussian data (nvfp4.md 3.2, C9), in percent; they add up to 100.1.
constexpr std::array<double, 8> kGaussianCodes = {6.9, 13.4, 12.8, 11.7, 15.1, 15.3, 13.7, 11.2};

// In the order of their values: -6 ... -0, 0 ... 6.
constexpr std::array<int, 16> kCodeOrder = {15, 14, 13, 12, 11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7};

std::string code_label(int code) {
  const float value = e2m1_decode(static_cast<uint8_t>(code));
  return code == 8 ? "-0" : fmt::format("{}", value);
}

std::string code_bars(const std::array<double, 16>& shares, bool gaussian) {
  constexpr double kLeft = 44;
  constexpr double kTop = 16;
  constexpr double kBottom = 196;
  const double most = std::max(0.1, *std::max_element(shares.begin(), shares.end()));
  const double high = std::ceil(most * 20) / 20;  // whole steps of 5 %
  const double tick = high > 0.3 ? 0.2 : 0.05;
  const auto y = [&](double share) { return kBottom - (kBottom - kTop) * share / high; };
  std::string out;
  for (double t = 0; t <= high + 1e-9; t += tick) {
    out += svg_line(kLeft, y(t), kChartRight, y(t), t == 0 ? "axis" : "grid");
    out += svg_text(kLeft - 6, y(t) + 4, "end", fmt::format("{:.0f} %", 100 * t));
  }
  const double step = (kChartRight - kLeft) / 16;
  for (size_t i = 0; i < 16; ++i) {
    const auto code = static_cast<size_t>(kCodeOrder[i]);
    const double x = kLeft + step * static_cast<double>(i);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"bar\">"
        "<title>code {} ({}): {}</title></rect>\n",
        x + step * 0.14, y(shares[code]), step * 0.72, kBottom - y(shares[code]), code,
        code_label(kCodeOrder[i]), percent_text(shares[code]));
    if (gaussian) {
      const double expected = y(kGaussianCodes[code % 8] / 200.2);
      out += svg_line(x + step * 0.04, expected, x + step * 0.96, expected, "expected");
    }
    out += svg_text(x + step / 2, kBottom + 16, "middle", code_label(kCodeOrder[i]));
  }
  return out;
}

}  // namespace

std::string code_chart(const Diagnosis& diagnosis) {
  std::array<int64_t, 16> nvfp4{};
  std::array<int64_t, 16> mxfp4{};
  for (const LinearSummary& linear : diagnosis.linears) {
    if (!linear.statistics || !is_quantized(linear.scheme)) continue;
    auto& counts = linear.scheme == Scheme::kNvfp4 ? nvfp4 : mxfp4;
    const CodeStatistics s = linear.statistics.unpack();
    for (int code = 0; code < 16; ++code) counts[static_cast<size_t>(code)] += s.codes(code);
  }
  const auto sum = [](const std::array<int64_t, 16>& counts) {
    int64_t n = 0;
    for (const int64_t count : counts) n += count;
    return n;
  };
  // What a Gaussian gives is known for NVFP4.
  const bool gaussian = sum(nvfp4) > 0;
  const std::array<int64_t, 16>& counts = gaussian ? nvfp4 : mxfp4;
  const int64_t n = sum(counts);
  if (n == 0) return {};
  std::array<double, 16> shares{};
  for (size_t i = 0; i < 16; ++i)
    shares[i] = static_cast<double>(counts[i]) / static_cast<double>(n);
  constexpr std::string_view kTitle = "The 16 codes over the whole model";
  std::string description = "Share of each code, by value:";
  for (const int code : kCodeOrder)
    description +=
        fmt::format(" {}: {};", code_label(code), percent_text(shares[static_cast<size_t>(code)]));
  return chart_figure(
      kTitle,
      svg_begin("codes", 222, kTitle, description) + code_bars(shares, gaussian) + "</svg></div>\n",
      fmt::format("{} codes of {} linears, by value.{}", count_text(n),
                  gaussian ? "NVFP4" : "MXFP4",
                  gaussian ? " Lines: what Gaussian weights give, with zeros of both "
                             "signs (writers that drop the sign have no -0)."
                           : ""));
}

}  // namespace sextant
