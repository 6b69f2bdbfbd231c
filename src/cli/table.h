// Plain aligned columns for people: a header, rows of text, numbers to the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sextant {

class Table {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);  // one text a column
  bool empty() const { return rows_.empty(); }
  std::string text() const;  // lines with their ends; no space at a line's end

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

int64_t display_width(const std::string& text);  // code points; enough for names and numbers

}  // namespace sextant
