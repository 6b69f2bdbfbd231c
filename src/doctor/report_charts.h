// The charts of the HTML report: inline SVG that takes its colors from the page's style, with a
// title and a description in words. Each is a <figure>, or empty where there is nothing to draw.
// Everything that comes from a checkpoint is escaped; at most kMaxChartRows projections and
// kMaxChartLayers layers are drawn, and the caption says what was left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctor/diagnosis.h"

namespace sextant {

inline constexpr size_t kMaxChartRows = 16;
inline constexpr size_t kMaxChartLayers = 512;

// What the linears of one projection in one layer have in common; experts are summed.
struct LayerCell {
  int64_t n_linears = 0;
  double g_min = 0;  // finite positive multipliers only; 0: there is none
  double g_max = 0;
  int64_t n_e4m3_blocks = 0;  // with scales in E4M3 (NVFP4)
  int64_t n_saturated = 0;    // 0x7E
  int64_t n_subnormal = 0;    // below 0x08
  int64_t n_blocks = 0;
  int64_t n_zero = 0;
};

// 4-bit linears by projection (the model's order) and layer.
struct LayerGrid {
  std::vector<std::string> rows;
  std::vector<int64_t> layers;
  std::map<std::pair<size_t, size_t>, LayerCell> cells;  // row, place of the layer
  size_t n_rows_left_out = 0;
  size_t n_layers_left_out = 0;
  int64_t n_bad_scales = 0;            // not finite or not positive: not drawn
  std::vector<std::string> elsewhere;  // modules that belong to no layer
};
LayerGrid layer_grid(const Diagnosis& diagnosis);

std::string global_scale_chart(const LayerGrid& grid);

// One kind of block, where a check speaks above a share.
struct BlockShare {
  std::string_view id;     // of the figure: "saturated"
  std::string_view title;  // "Blocks at the largest scale (0x7E)"
  std::string_view noun;   // "at the largest scale"
  int64_t LayerCell::*count;
  int64_t LayerCell::*of;
  double threshold;
  std::string_view check;  // "C6"
};
const std::vector<BlockShare>& block_shares();
// A sentence instead of a figure where no block is of the kind.
std::string block_share_chart(const LayerGrid& grid, const BlockShare& share);

std::string code_chart(const Diagnosis& diagnosis);

}  // namespace sextant
