// Each chart from the grid of its numbers.
#include "doctor/report_charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "doctor/report_svg.h"
#include "io/utf8.h"

namespace sextant {
namespace {

constexpr size_t kLabelChars = 22;

// --- parts of a chart ---

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
std::string layer_axis(const LayerGrid& grid, double left, double step, double y) {
  const auto n = grid.layers.size();
  size_t every = 1;
  for (const size_t candidate : {2U, 5U, 10U, 20U, 50U, 100U})
    if ((n + every - 1) / every > 16) every = candidate;
  std::string out;
  for (size_t i = 0; i < n; i += every)
    out += svg_text(left + step * (static_cast<double>(i) + 0.5), y, "middle",
                    fmt::format("{}", grid.layers[i]));
  return out + svg_text(left - 8, y, "end", "layer");
}

std::string left_out_text(const LayerGrid& grid) {
  std::string out;
  if (grid.n_rows_left_out > 0)
    out += fmt::format(" {} more projections are not drawn.", grid.n_rows_left_out);
  if (grid.n_layers_left_out > 0)
    out += fmt::format(" {} more layers are not drawn.", grid.n_layers_left_out);
  return out;
}

// --- the grid ---

constexpr std::array<std::string_view, 21> kProjectionOrder = {
    "q_proj",   "q_a_proj",  "q_b_proj", "kv_proj",      "kv_a_proj_with_mqa", "kv_b_proj",
    "k_proj",   "v_proj",    "qkv_proj", "o_proj",       "o_a_proj",           "o_b_proj",
    "out_proj", "gate_proj", "up_proj",  "gate_up_proj", "down_proj",          "w1",
    "w3",       "w2",        "fc1"};

// Attention, then dense feed-forward, shared and routed experts, each in the order of computation.
std::pair<int, std::string> row_order(const LinearSummary& linear) {
  const auto* const at =
      std::find(kProjectionOrder.begin(), kProjectionOrder.end(), linear.projection);
  int order = static_cast<int>(at - kProjectionOrder.begin());
  std::string label = linear.projection;
  if (linear.expert) {
    order += 200;
    label = "expert " + label;
  } else if (linear.module.find("shared_expert") != std::string::npos) {
    order += 100;
    label = "shared " + label;
  }
  return {order, label};
}

bool has_codes(const LinearSummary& linear) {
  return linear.scheme == Scheme::kNvfp4 || linear.scheme == Scheme::kMxfp4;
}

void add_to_cell(const LinearSummary& linear, LayerCell& cell, int64_t& n_bad_scales) {
  ++cell.n_linears;
  if (linear.g) {
    const double g = *linear.g;
    if (std::isfinite(g) && g > 0) {
      cell.g_min = cell.g_min == 0 ? g : std::min(cell.g_min, g);
      cell.g_max = std::max(cell.g_max, g);
    } else {
      ++n_bad_scales;
    }
  }
  if (!linear.statistics) return;
  const CodeStatistics& s = *linear.statistics;
  cell.n_blocks += s.n_blocks;
  cell.n_zero += s.n_zero_blocks;
  if (linear.scheme != Scheme::kNvfp4) return;
  cell.n_e4m3_blocks += s.n_blocks;
  cell.n_saturated += s.scale_bytes[0x7E];
  for (size_t byte = 0; byte < 8; ++byte) cell.n_subnormal += s.scale_bytes[byte];
}

// --- global scales ---

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

// One projection: a line through the largest g of each layer, broken where a layer has none, and
// the range of its experts.
std::string scale_series(const LayerGrid& grid, size_t row, const LogAxis& axis, double left,
                         double step) {
  std::string out = fmt::format("<g class=\"series s{} d{}\">\n", row % 8, row / 8);
  std::string path;
  std::string marks;
  bool open = false;
  for (size_t i = 0; i < grid.layers.size(); ++i) {
    const auto it = grid.cells.find({row, i});
    if (it == grid.cells.end() || it->second.g_max == 0) {
      open = false;
      continue;
    }
    const LayerCell& cell = it->second;
    const double x = left + step * (static_cast<double>(i) + 0.5);
    path += fmt::format("{}{:.1f} {:.1f}", open ? "L" : "M", x, axis.y(cell.g_max));
    open = true;
    if (cell.g_min < cell.g_max)
      marks += svg_line(x, axis.y(cell.g_min), x, axis.y(cell.g_max), "range");
    const std::string values =
        cell.g_min < cell.g_max
            ? fmt::format("{} to {}", scale_text(cell.g_min), scale_text(cell.g_max))
            : scale_text(cell.g_max);
    marks += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"><title>{}, layer {}: {}</title></circle>\n", x,
        axis.y(cell.g_max), html_escape(grid.rows[row]), grid.layers[i], values);
  }
  out += fmt::format("<path d=\"{}\"/>\n{}</g>\n", path, marks);
  return out;
}

std::string series_legend(const LayerGrid& grid) {
  std::string out = "<ul class=\"legend\">\n";
  for (size_t row = 0; row < grid.rows.size(); ++row)
    out += fmt::format(
        "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><g class=\"series s{} d{}\">"
        "<path d=\"M0 4L24 4\"/></g></svg>{}</li>\n",
        row % 8, row / 8, html_escape(grid.rows[row]));
  return out + "</ul>\n";
}

// --- shares of blocks ---

// Faint below the threshold (from a millionth of it on), strong above, so that what is healthy does
// not shout. Logarithmic on both sides.
double cell_ink(double part, double threshold) {
  if (part == 0) return 1;  // has a color of its own
  const double decades = std::log10(part / threshold);
  if (decades <= 0) return std::clamp(0.45 + 0.07 * decades, 0.1, 0.45);
  return std::clamp(0.65 + 0.35 * decades / -std::log10(threshold), 0.65, 1.0);
}

}  // namespace

LayerGrid layer_grid(const Diagnosis& diagnosis) {
  LayerGrid grid;
  std::set<std::pair<int, std::string>> rows;
  std::set<int64_t> layers;
  for (const LinearSummary& linear : diagnosis.linears) {
    if (!has_codes(linear)) continue;
    if (!linear.layer) {
      grid.elsewhere.push_back(linear.module);
      continue;
    }
    rows.insert(row_order(linear));
    layers.insert(*linear.layer);
  }
  std::map<std::string, size_t> row_of;
  for (const auto& [order, label] : rows) {
    if (grid.rows.size() < kMaxChartRows) {
      row_of[label] = grid.rows.size();
      grid.rows.push_back(label);
    } else {
      ++grid.n_rows_left_out;
    }
  }
  std::map<int64_t, size_t> place_of;
  for (const int64_t layer : layers) {
    if (grid.layers.size() < kMaxChartLayers) {
      place_of[layer] = grid.layers.size();
      grid.layers.push_back(layer);
    } else {
      ++grid.n_layers_left_out;
    }
  }
  for (const LinearSummary& linear : diagnosis.linears) {
    if (!has_codes(linear) || !linear.layer) continue;
    const auto row = row_of.find(row_order(linear).second);
    const auto place = place_of.find(*linear.layer);
    if (row == row_of.end() || place == place_of.end()) continue;
    add_to_cell(linear, grid.cells[{row->second, place->second}], grid.n_bad_scales);
  }
  return grid;
}

std::string global_scale_chart(const LayerGrid& grid) {
  LogAxis axis;
  for (const auto& [at, cell] : grid.cells) {
    if (cell.g_max == 0) continue;
    axis.low = axis.low == 0 ? cell.g_min : std::min(axis.low, cell.g_min);
    axis.high = std::max(axis.high, cell.g_max);
  }
  if (axis.high == 0) return {};
  const std::string description = fmt::format(
      "Multiplier g on a logarithmic axis over {} layers, a line for each of {} projections; from "
      "{} to {}.",
      grid.layers.size(), grid.rows.size(), scale_text(axis.low), scale_text(axis.high));
  axis.low /= 1.5;
  axis.high *= 1.5;
  constexpr double kLeft = 56;
  const double step = (kChartRight - kLeft) / static_cast<double>(grid.layers.size());
  constexpr std::string_view kTitle = "Global scale of the weights by layer";
  std::string svg = svg_begin("scales", 262, kTitle, description);
  for (const double tick : log_ticks(axis.low, axis.high)) {
    svg += svg_line(kLeft, axis.y(tick), kChartRight, axis.y(tick), "grid");
    svg += svg_text(kLeft - 6, axis.y(tick) + 4, "end", scale_text(tick));
  }
  svg += svg_line(kLeft, axis.bottom, kChartRight, axis.bottom, "axis");
  svg += layer_axis(grid, kLeft, step, axis.bottom + 20);
  for (size_t row = 0; row < grid.rows.size(); ++row)
    svg += scale_series(grid, row, axis, kLeft, step);
  svg += "</svg></div>\n" + series_legend(grid);
  std::string caption =
      "The multiplier g; where experts differ, the largest, with a bar down to the smallest.";
  caption += left_out_text(grid);
  if (grid.n_bad_scales > 0)
    caption += fmt::format(" {} scales that are not finite and positive are not drawn.",
                           grid.n_bad_scales);
  return chart_figure(kTitle, svg, caption);
}

const std::vector<BlockShare>& block_shares() {
  static const std::vector<BlockShare> shares = {
      {"saturated", "Blocks at the largest scale (0x7E)", "at the largest scale",
       &LayerCell::n_saturated, &LayerCell::n_e4m3_blocks, 0.01, "C6"},
      {"subnormal", "Blocks with a subnormal or zero scale (below 0x08)",
       "with a subnormal or zero scale", &LayerCell::n_subnormal, &LayerCell::n_e4m3_blocks, 0.001,
       "C8"},
      {"zero", "Blocks whose codes are all zero", "of zeros", &LayerCell::n_zero,
       &LayerCell::n_blocks, 0.05, "C5"}};
  return shares;
}

std::string block_share_chart(const LayerGrid& grid, const BlockShare& share) {
  int64_t n = 0;
  int64_t n_blocks = 0;
  for (const auto& [at, cell] : grid.cells) {
    n += cell.*share.count;
    n_blocks += cell.*share.of;
  }
  if (n_blocks == 0) return {};
  if (n == 0)
    return fmt::format("<p>No block {} among {}.</p>\n", share.noun, count_text(n_blocks));
  constexpr double kLeft = 150;
  constexpr double kRowHeight = 18;
  const double step = (kChartRight - kLeft) / static_cast<double>(grid.layers.size());
  const double bottom = 6 + kRowHeight * static_cast<double>(grid.rows.size());
  std::string svg = svg_begin(
      share.id, bottom + 26, share.title,
      fmt::format("Rows are projections, columns are layers, stronger is more. {} of all blocks.",
                  percent_text(static_cast<double>(n) / static_cast<double>(n_blocks))));
  for (size_t row = 0; row < grid.rows.size(); ++row)
    svg += svg_text(kLeft - 8, 6 + kRowHeight * static_cast<double>(row) + 13, "end",
                    short_label(grid.rows[row]));
  for (const auto& [at, cell] : grid.cells) {
    if (cell.*share.of == 0) continue;
    const double part =
        static_cast<double>(cell.*share.count) / static_cast<double>(cell.*share.of);
    const std::string_view look = part == 0                ? "cell none"
                                  : part > share.threshold ? "cell over"
                                                           : "cell";
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\" "
        "fill-opacity=\"{:.2f}\"><title>{}, layer {}: {}</title></rect>\n",
        kLeft + step * static_cast<double>(at.second) + std::min(0.5, step * 0.05),
        7 + kRowHeight * static_cast<double>(at.first), step - std::min(1.0, step * 0.1),
        kRowHeight - 2, look, cell_ink(part, share.threshold), html_escape(grid.rows[at.first]),
        grid.layers[at.second], percent_text(part));
  }
  svg += layer_axis(grid, kLeft, step, bottom + 18) + "</svg></div>\n";
  return chart_figure(
      share.title, svg,
      fmt::format("{} of {} blocks. Strong and outlined where the share is above {}, the threshold "
                  "of check {}.{}",
                  percent_text(static_cast<double>(n) / static_cast<double>(n_blocks)),
                  count_text(n_blocks), percent_text(share.threshold), share.check,
                  left_out_text(grid)));
}

}  // namespace sextant
