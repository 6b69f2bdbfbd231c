#include "cli/table.h"

#include <algorithm>

#include "base/check.h"

namespace sextant {

int64_t display_width(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void Table::add(std::vector<std::string> cells) {
  SX_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(),
           columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<int64_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int64_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](auto cell) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) text += "  ";
      const std::string& value = cell(i);
      const std::string padding(static_cast<size_t>(widths[i] - display_width(value)), ' ');
      text += columns_[i].align == Align::kRight ? padding + value : value + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

}  // namespace sextant
