// Linears that keep their columns first in the file (LinearRecord::column_major), brought into row
// order for whoever reads values. One linear, or some of its rows, at a time: never a checkpoint.
#pragma once

#include <vector>

#include "checkpoint/record.h"

namespace sextant {

class RowOrdered {
 public:
  explicit RowOrdered(const LinearRecord& record) : RowOrdered(record, 0, record.n) {}
  // Rows [row_begin, row_end) only, of a column-major record with scales of one row each.
  RowOrdered(const LinearRecord& record, int64_t row_begin, int64_t row_end);
  RowOrdered(const RowOrdered&) = delete;
  RowOrdered& operator=(const RowOrdered&) = delete;

  // The given record where it is in row order already; else one whose bytes live as long as this.
  const LinearRecord& record() const { return *record_; }

 private:
  const LinearRecord* record_;
  LinearRecord own_;
  TensorInfo infos_[2];
  std::vector<std::byte> bytes_[2];
};

}  // namespace sextant
