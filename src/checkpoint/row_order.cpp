// A tile at a time, so that both sides stay in cache. Worked example, codes of 4 columns and 3
// rows, stored [2, 3]: byte (0, r) holds columns 0 and 1 of row r, byte (1, r) columns 2 and 3.
// Transposed as bytes, [3, 2], row r has its columns 0 to 3 in order: nibbles stay where they are.
#include "checkpoint/row_order.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sextant {
namespace {

constexpr int64_t kTile = 64;

// in [columns, all_rows] -> out [row_end - row_begin, columns].
template <class T>
void transpose(const std::byte* in, int64_t columns, int64_t all_rows, int64_t row_begin,
               int64_t row_end, std::byte* out) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  for (int64_t column0 = 0; column0 < columns; column0 += kTile)
    for (int64_t row0 = row_begin; row0 < row_end; row0 += kTile)
      for (int64_t row = row0; row < std::min(row_end, row0 + kTile); ++row)
        for (int64_t column = column0; column < std::min(columns, column0 + kTile); ++column)
          std::memcpy(out + ((row - row_begin) * columns + column) * kSize,
                      in + (column * all_rows + row) * kSize, sizeof(T));
}

// A part of a column-major linear, [columns, rows] of whole bytes, as rows [begin, end).
TensorRef in_rows(const TensorRef& ref, int64_t begin, int64_t end, TensorInfo& info,
                  std::vector<std::byte>& bytes) {
  SX_CHECK(ref.info->shape.size() == 2, "{} extents", ref.info->shape.size());
  const int64_t columns = ref.info->shape[0];
  const int64_t rows = ref.info->shape[1];
  const int64_t size = dtype_bits(ref.info->dtype) / 8;
  SX_CHECK(begin >= 0 && begin <= end && end <= rows);
  info = *ref.info;
  info.shape = {end - begin, columns};
  info.begin = 0;
  info.end = (end - begin) * columns * size;
  bytes.resize(static_cast<size_t>(info.end));
  const std::byte* in = ref.bytes().data();
  switch (size) {
    case 1: transpose<uint8_t>(in, columns, rows, begin, end, bytes.data()); break;
    case 2: transpose<uint16_t>(in, columns, rows, begin, end, bytes.data()); break;
    case 4: transpose<uint32_t>(in, columns, rows, begin, end, bytes.data()); break;
    default: SX_CHECK(false, "{} bytes an element", size);
  }
  return {ref.file, &info, bytes.data(), ref.expert};
}

}  // namespace

RowOrdered::RowOrdered(const LinearRecord& record, int64_t row_begin, int64_t row_end)
    : record_(&record) {
  const bool whole = row_begin == 0 && row_end == record.n;
  if (!record.column_major) {
    SX_CHECK(whole, "rows of {} can be read where they are", record.module);
    return;
  }
  SX_CHECK(whole || record.block_n == 1, "{} rows share a scale", record.block_n);
  own_ = record;
  own_.column_major = false;
  own_.n = row_end - row_begin;
  own_.weight = in_rows(record.weight, row_begin, row_end, infos_[0], bytes_[0]);
  // A scale a row or a tensor has no columns to put in order.
  if (record.scales && record.scales.info->shape.size() == 2) {
    const int64_t rows = record.scales.info->shape[1];
    own_.scales =
        in_rows(record.scales, whole ? 0 : row_begin, whole ? rows : row_end, infos_[1], bytes_[1]);
  }
  own_.ranges.clear();
  for (ScaleRange range : record.ranges) {
    range.row_begin = std::max(range.row_begin, row_begin) - row_begin;
    range.row_end = std::min(range.row_end, row_end) - row_begin;
    if (range.row_begin < range.row_end) own_.ranges.push_back(range);
  }
  record_ = &own_;
}

}  // namespace sextant
