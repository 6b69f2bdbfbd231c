// ref's layout is the file's: rows of codes, then (FP4 forms) rows of block scales.
#include <cstring>

#include "kernels/pack_source.h"
#include "kernels/ref/ref.h"

namespace sextant::ref {

PackedLinear pack(const WeightSource& source, ThreadPool& pool) {
  PackedLinear packed = packed_header(source, source.n, false, "ref");
  const int64_t row_bytes = weight_row_bytes(source.form, source.k);
  const int64_t scale_cols =
      fp4_block(source.form) != 0 ? source_scale_cols(source) : int64_t{0};  // a byte each
  packed.data = AlignedBuffer(source.n * (row_bytes + scale_cols));
  packed.weight_bytes = packed.data.size() + packed.scales.size();
  std::byte* codes = packed.data.data();
  std::byte* scales = codes + source.n * row_bytes;
  for_source_rows(source, 1, pool, [&](int64_t begin, int64_t end) {
    const int64_t rows = end - begin;
    if (row_bytes != 0)
      std::memcpy(codes + begin * row_bytes, source.weight + begin * row_bytes,
                  static_cast<size_t>(rows * row_bytes));
    if (scale_cols != 0)
      std::memcpy(scales + begin * scale_cols, source.scales + begin * scale_cols,
                  static_cast<size_t>(rows * scale_cols));
  });
  return packed;
}

}  // namespace sextant::ref
