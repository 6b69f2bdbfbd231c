// Each chart from the grid of its numbers.
#include "doctor/report_charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "doctor/layer_charts.h"
#include "doctor/report_svg.h"

namespace sextant {
namespace {

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
  const CodeStatistics s = linear.statistics.unpack();
  cell.n_blocks += s.n_blocks;
  cell.n_zero += s.n_zero_blocks;
  if (linear.scheme != Scheme::kNvfp4) return;
  cell.n_e4m3_blocks += s.n_blocks;
  cell.n_saturated += s.scale_bytes[0x7E];
  for (size_t byte = 0; byte < 8; ++byte) cell.n_subnormal += s.scale_bytes[byte];
}

}  // namespace

LayerGrid layer_grid(const Diagnosis& diagnosis) {
  LayerGrid grid;
  std::set<std::pair<int, std::string>> rows;
  std::set<int64_t> layers;
  for (const LinearSummary& linear : diagnosis.linears) {
    if (!has_codes(linear.scheme)) continue;
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
    if (!has_codes(linear.scheme) || !linear.layer) continue;
    const auto row = row_of.find(row_order(linear).second);
    const auto place = place_of.find(*linear.layer);
    if (row == row_of.end() || place == place_of.end()) continue;
    add_to_cell(linear, grid.cells[{row->second, place->second}], grid.n_bad_scales);
  }
  return grid;
}

std::string global_scale_chart(const LayerGrid& grid) {
  LayerLines chart;
  chart.id = "scales";
  chart.title = "Global scale of the weights by layer";
  chart.what = "Multiplier g";
  chart.lines = "projections";
  chart.layers = grid.layers;
  for (const std::string& label : grid.rows)
    chart.series.push_back({label, std::vector<LayerRange>(grid.layers.size())});
  for (const auto& [at, cell] : grid.cells)
    chart.series[at.first].at[at.second] = {cell.g_min, cell.g_max};
  chart.caption =
      "The multiplier g; where experts differ, the largest, with a bar down to the smallest.";
  chart.caption += left_out_text(grid);
  if (grid.n_bad_scales > 0)
    chart.caption += fmt::format(" {} scales that are not finite and positive are not drawn.",
                                 grid.n_bad_scales);
  return layer_lines_chart(chart);
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
  const double all = static_cast<double>(n) / static_cast<double>(n_blocks);
  LayerShares chart;
  chart.id = share.id;
  chart.title = share.title;
  chart.description =
      fmt::format("Rows are projections, columns are layers, stronger is more. {} of all blocks.",
                  percent_text(all));
  chart.rows = grid.rows;
  chart.layers = grid.layers;
  chart.threshold = share.threshold;
  for (const auto& [at, cell] : grid.cells)
    if (cell.*share.of > 0)
      chart.cells[at] =
          static_cast<double>(cell.*share.count) / static_cast<double>(cell.*share.of);
  chart.caption = fmt::format(
      "{} of {} blocks. Strong and outlined where the share is above {}, the threshold of check "
      "{}.{}",
      percent_text(all), count_text(n_blocks), percent_text(share.threshold), share.check,
      left_out_text(grid));
  return layer_shares_chart(chart);
}

}  // namespace sextant
