// What every packer does with a WeightSource before its own layout: checks, row sizes, scales as
// float32, row multipliers, and the walk over the rows in parallel that gives source pages back as
// it goes. Not the layout itself.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "kernels/ops.h"

namespace sextant {

int64_t weight_row_bytes(WeightForm form, int64_t k);
// Columns one block scale covers for the FP4 forms; 0 for the others.
int64_t fp4_block(WeightForm form);
// Scale columns a row of the source has; 0 without block scales.
int64_t source_scale_cols(const WeightSource& source);

// Programmer errors only: the checkpoint floor has checked sizes and dtypes.
void check_source(const WeightSource& source);
// form, n, k, blocks, float scales of kFp8 and row multipliers (padded to n_padded with zeros)
// filled in; data left to the caller. With force_multipliers they are there even where the source
// has none.
PackedLinear packed_header(const WeightSource& source, int64_t n_padded, bool force_multipliers,
                           const char* table);

// f(row_begin, row_end) over all rows in order of chunks, the ranges of a chunk in parallel, each a
// multiple of grain rows but the last; source.release after each chunk.
template <class F>
void for_source_rows(const WeightSource& source, int64_t grain, ThreadPool& pool, F&& f) {
  constexpr int64_t kChunkBytes = int64_t{4} << 20;
  const int64_t row_bytes =
      weight_row_bytes(source.form, source.k) + source_scale_cols(source) + int64_t{1};
  const int64_t grains = kChunkBytes / (row_bytes * grain);
  const int64_t chunk = (grains < pool.n_threads() ? pool.n_threads() : grains) * grain;
  for (int64_t begin = 0; begin < source.n; begin += chunk) {
    const int64_t end = begin + chunk < source.n ? begin + chunk : source.n;
    pool.split(end - begin, grain,
               [&](int64_t from, int64_t to, int) { f(begin + from, begin + to); });
    if (source.release != nullptr) source.release(source.release_context, end);
  }
}

}  // namespace sextant
