// Implements layer_charts.h.
#include "doctor/layer_charts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "doctor/report_svg.h"
#include "io/utf8.h"

namespace sextant {
namespace {

constexpr size_t kLabelChars = 22;

// A label that fits its margin; whole characters only.
std::string short_label(const std::string& label) {
  std::string out;
  size_t n = 0;
  for (size_t i = 0; i < label.size(); ++n) {
    if (n == kLabelChars) return out + "...";
    const auto bytes = static_cast<size_t>(std::max(1, decode_utf8(label, i).n_bytes));
    out += label.substr(i, bytes);
    i += bytes;
  }
  return out;
}

// Numbers of layers below a chart, as many as fit.
std::string layer_axis(const std::vector<int64_t>& layers, double left, double step, double y) {
  const auto n = layers.size();
  size_t every = 1;
  for (const size_t candidate : {2U, 5U, 10U, 20U, 50U, 100U})
    if ((n + every - 1) / every > 16) every = candidate;
  std::string out;
  for (size_t i = 0; i < n; i += every)
    out += svg_text(left + step * (static_cast<double>(i) + 0.5), y, "middle",
                    fmt::format("{}", layers[i]));
  return out + svg_text(left - 8, y, "end", "layer");
}

// Values of a logarithmic axis that are worth a line: 1, 2, 5 in a decade, or decades alone.
std::vector<double> log_ticks(double low, double high) {
  const double span = std::log10(high / low);
  const int every = span > 10 ? static_cast<int>(std::ceil(span / 8)) : 1;
  std::vector<double> ticks;
  for (int e = static_cast<int>(std::floor(std::log10(low))); e <= std::ceil(std::log10(high)); ++e)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * std::pow(10.0, e);
      if ((digit != 1 && span > 2.2) || (digit == 1 && every > 1 && e % every != 0)) continue;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
    }
  return ticks;
}

struct LogAxis {
  double low = 0;
  double high = 0;
  double top = 14;
  double bottom = 230;
  double y(double value) const {
    return bottom - (bottom - top) * std::log(value / low) / std::log(high / low);
  }
};

// One line, broken where a layer has no value, and the ranges of its points.
std::string line_series(const LayerLines& chart, size_t line, const LogAxis& axis, double left,
                        double step) {
  const LayerSeries& series = chart.series[line];
  std::string out = fmt::format("<g class=\"series s{} d{}\">\n", line % 8, line / 8);
  std::string path;
  std::string marks;
  bool open = false;
  for (size_t i = 0; i < series.at.size(); ++i) {
    const LayerRange& range = series.at[i];
    if (range.high == 0) {
      open = false;
      continue;
    }
    const double x = left + step * (static_cast<double>(i) + 0.5);
    path += fmt::format("{}{:.1f} {:.1f}", open ? "L" : "M", x, axis.y(range.high));
    open = true;
    const bool wide = range.low > 0 && range.low < range.high;
    if (wide) marks += svg_line(x, axis.y(range.low), x, axis.y(range.high), "range");
    const std::string values =
        wide ? fmt::format("{} to {}", scale_text(range.low), scale_text(range.high))
             : scale_text(range.high);
    marks += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"><title>{}, layer {}: {}</title></circle>\n", x,
        axis.y(range.high), html_escape(series.label), chart.layers[i], values);
  }
  out += fmt::format("<path d=\"{}\"/>\n{}</g>\n", path, marks);
  return out;
}

std::string series_legend(const LayerLines& chart) {
  std::string out = "<ul class=\"legend\">\n";
  for (size_t row = 0; row < chart.series.size(); ++row)
    out += fmt::format(
        "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><g class=\"series s{} d{}\">"
        "<path d=\"M0 4L24 4\"/></g></svg>{}</li>\n",
        row % 8, row / 8, html_escape(chart.series[row].label));
  return out + "</ul>\n";
}

// Faint below the threshold (from a millionth of it on), strong above, so that what is healthy does
// not shout. Logarithmic on both sides.
double cell_ink(double part, double threshold) {
  if (part == 0) return 1;  // has a color of its own
  const double decades = std::log10(part / threshold);
  if (decades <= 0) return std::clamp(0.45 + 0.07 * decades, 0.1, 0.45);
  return std::clamp(0.65 + 0.35 * decades / -std::log10(threshold), 0.65, 1.0);
}

}  // namespace

std::string layer_lines_chart(const LayerLines& chart) {
  LogAxis axis;
  for (const LayerSeries& series : chart.series)
    for (const LayerRange& range : series.at) {
      if (range.high == 0) continue;
      const double low = range.low > 0 ? range.low : range.high;
      axis.low = axis.low == 0 ? low : std::min(axis.low, low);
      axis.high = std::max(axis.high, range.high);
    }
  if (axis.high == 0) return {};
  const std::string description = fmt::format(
      "{} on a logarithmic axis over {} layers, a line for each of {} {}; from {} to {}.",
      chart.what, chart.layers.size(), chart.series.size(), chart.lines, scale_text(axis.low),
      scale_text(axis.high));
  axis.low /= 1.5;
  axis.high *= 1.5;
  constexpr double kLeft = 56;
  const double step = (kChartRight - kLeft) / static_cast<double>(chart.layers.size());
  std::string svg = svg_begin(chart.id, 262, chart.title, description);
  for (const double tick : log_ticks(axis.low, axis.high)) {
    svg += svg_line(kLeft, axis.y(tick), kChartRight, axis.y(tick), "grid");
    svg += svg_text(kLeft - 6, axis.y(tick) + 4, "end", scale_text(tick));
  }
  svg += svg_line(kLeft, axis.bottom, kChartRight, axis.bottom, "axis");
  svg += layer_axis(chart.layers, kLeft, step, axis.bottom + 20);
  for (size_t line = 0; line < chart.series.size(); ++line)
    svg += line_series(chart, line, axis, kLeft, step);
  svg += "</svg></div>\n" + series_legend(chart);
  return chart_figure(chart.title, svg, chart.caption);
}

std::string layer_shares_chart(const LayerShares& chart) {
  constexpr double kLeft = 150;
  constexpr double kRowHeight = 18;
  const double step = (kChartRight - kLeft) / static_cast<double>(chart.layers.size());
  const double bottom = 6 + kRowHeight * static_cast<double>(chart.rows.size());
  std::string svg = svg_begin(chart.id, bottom + 26, chart.title, chart.description);
  for (size_t row = 0; row < chart.rows.size(); ++row)
    svg += svg_text(kLeft - 8, 6 + kRowHeight * static_cast<double>(row) + 13, "end",
                    short_label(chart.rows[row]));
  for (const auto& [at, part] : chart.cells) {
    const std::string_view look = part == 0                ? "cell none"
                                  : part > chart.threshold ? "cell over"
                                                           : "cell";
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\" "
        "fill-opacity=\"{:.2f}\"><title>{}, layer {}: {}</title></rect>\n",
        kLeft + step * static_cast<double>(at.second) + std::min(0.5, step * 0.05),
        7 + kRowHeight * static_cast<double>(at.first), step - std::min(1.0, step * 0.1),
        kRowHeight - 2, look, cell_ink(part, chart.threshold), html_escape(chart.rows[at.first]),
        chart.layers[at.second], percent_text(part));
  }
  svg += layer_axis(chart.layers, kLeft, step, bottom + 18) + "</svg></div>\n";
  return chart_figure(chart.title, svg, chart.caption);
}

}  // namespace sextant
