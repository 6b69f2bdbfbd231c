// Two linears value by value: what compare_weights measures, without what it thinks of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/record.h"
#include "checkpoint/row_order.h"
#include "doctor/against.h"

namespace sextant {

// A linear's rows as float32, bit for bit what its format defines (nvfp4.md 1.6), times its
// pre_quant_scale. The record must outlive it.
class WeightRows {
 public:
  explicit WeightRows(const LinearRecord& record);
  // out [k]; scratch is a worker's own.
  void read(int64_t row, std::vector<float>& scratch, float* out) const;

 private:
  RowOrdered rows_;
  const LinearRecord& record_;
  std::vector<float> columns_;  // pre_quant_scale, empty where there is none
};

// n rows of a record.
struct RowSpan {
  const LinearRecord* record = nullptr;
  int64_t row_begin = 0;
};

// Rows [row_begin, row_begin + n) of both; k must be equal. Gives the pages back that it read.
WeightDifference weight_difference(const std::string& module, RowSpan here, RowSpan reference,
                                   int64_t n, ThreadPool& pool);

}  // namespace sextant
