// Charts over the layers of a model, as figures of a page (report_svg.h): lines on a logarithmic
// axis, and shares as a grid of cells. What they show comes ready from whoever has the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sextant {

struct LayerRange {
  double low = 0;
  double high = 0;  // 0: nothing there, the line is broken
};

// A line through the high ends, with a bar down to the low one where they differ.
struct LayerSeries {
  std::string label;
  std::vector<LayerRange> at;  // one a layer
};

struct LayerLines {
  std::string_view id;
  std::string_view title;
  std::string_view what;   // of the description: "Multiplier g"
  std::string_view lines;  // what there is a line for: "projections"
  std::vector<int64_t> layers;
  std::vector<LayerSeries> series;
  std::string caption;  // HTML
};
// Empty where no series has a point.
std::string layer_lines_chart(const LayerLines& chart);

struct LayerShares {
  std::string_view id;
  std::string_view title;
  std::string description;
  std::vector<std::string> rows;
  std::vector<int64_t> layers;
  std::map<std::pair<size_t, size_t>, double> cells;  // row, place of the layer: 0 to 1
  double threshold = 0;                               // above it a cell is strong and outlined
  std::string caption;                                // HTML
};
std::string layer_shares_chart(const LayerShares& chart);

}  // namespace sextant
