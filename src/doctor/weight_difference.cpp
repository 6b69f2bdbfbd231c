// Both linears a slice of rows at a time; sums in float64 in one order, whatever the threads.
#include "doctor/weight_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "quant/convert.h"
#include "quant/fp8.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/ratio_name.h"

namespace sextant {
namespace {

constexpr int64_t kSliceValues = 1 << 16;
constexpr int64_t kDifferenceBlock = 16;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

void floats_of(DType dtype, const std::byte* in, int64_t n, float* out) {
  const bool known = stored_to_f32(dtype, in, n, out);
  SX_CHECK(known, "no weight or scale is stored as {}", dtype_name(dtype));
}

struct DifferenceSums {
  double reference2 = 0;
  double here2 = 0;
  double product = 0;
  double error2 = 0;
  double swapped = 0;  // the product with neighbors exchanged
  int64_t n_nonfinite = 0;
  int64_t n_nonfinite_reference = 0;
  int64_t worst_row = -1;
  int64_t worst_block = -1;
  double worst_error = 0;

  void add(const DifferenceSums& later) {
    reference2 += later.reference2;
    here2 += later.here2;
    product += later.product;
    error2 += later.error2;
    swapped += later.swapped;
    n_nonfinite += later.n_nonfinite;
    n_nonfinite_reference += later.n_nonfinite_reference;
    if (later.worst_error > worst_error) {
      worst_row = later.worst_row;
      worst_block = later.worst_block;
      worst_error = later.worst_error;
    }
  }
};

// Values of one block. A pair that is not finite is left out, with its error.
void add_value(double a, double b, double neighbor, DifferenceSums& sums) {
  sums.here2 += a * a;
  sums.reference2 += b * b;
  sums.product += a * b;
  sums.error2 += (a - b) * (a - b);
  sums.swapped += neighbor * b;
}

DifferenceSums block_sums(const float* here, const float* reference, int64_t n) {
  DifferenceSums sums;
  for (int64_t i = 0; i < n; ++i)
    add_value(here[i], reference[i], (i ^ 1) < n ? here[i ^ 1] : 0.0F, sums);
  // Squares of float32 do not overflow float64: what is not finite was not finite before.
  if (std::isfinite(sums.here2 + sums.reference2)) return sums;
  sums = {};
  for (int64_t i = 0; i < n; ++i) {
    const bool sound = std::isfinite(here[i]);
    const bool sound_reference = std::isfinite(reference[i]);
    sums.n_nonfinite += sound ? 0 : 1;
    sums.n_nonfinite_reference += sound_reference ? 0 : 1;
    if (sound && sound_reference) add_value(here[i], reference[i], 0.0, sums);
  }
  return sums;
}

double block_error(const DifferenceSums& block, double least_norm2) {
  if (block.n_nonfinite + block.n_nonfinite_reference > 0) return kInfinite;
  if (block.error2 == 0) return 0;
  return std::sqrt(block.error2 / std::max(block.reference2, least_norm2));
}

// What one worker needs.
struct SliceBuffers {
  std::vector<float> here;
  std::vector<float> reference;
  std::vector<float> scratch;
  std::vector<DifferenceSums> blocks;
};

void add_row(int64_t row, int64_t k, SliceBuffers& buffers, DifferenceSums& sums) {
  const auto n_blocks = static_cast<int64_t>(buffers.blocks.size());
  double row2 = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const int64_t begin = b * kDifferenceBlock;
    auto& block = buffers.blocks[static_cast<size_t>(b)];
    block = block_sums(buffers.here.data() + begin, buffers.reference.data() + begin,
                       std::min(kDifferenceBlock, k - begin));
    row2 += block.reference2;
  }
  const double least_norm2 = row2 / static_cast<double>(n_blocks) / 256.0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    auto& block = buffers.blocks[static_cast<size_t>(b)];
    block.worst_error = block_error(block, least_norm2);
    block.worst_row = row;
    block.worst_block = b;
    sums.add(block);
  }
}

std::optional<float> largest_multiplier(const RowSpan& rows, int64_t n) {
  if (rows.record->scheme != Scheme::kNvfp4) return std::nullopt;
  std::optional<float> g;
  for (const ScaleRange& range : rows.record->ranges)
    if (range.row_begin < rows.row_begin + n && range.row_end > rows.row_begin)
      g = std::max(g.value_or(range.g), range.g);
  return g;
}

double cosine_of(double product, double a2, double b2) {
  if (a2 == 0 && b2 == 0) return 1;
  if (a2 == 0 || b2 == 0) return 0;
  return product / std::sqrt(a2 * b2);  // exactly 1 for equal arrays
}

double ratio_of(double a2, double b2) {
  if (b2 > 0) return std::sqrt(a2 / b2);
  return a2 > 0 ? kInfinite : 1;
}

}  // namespace

WeightRows::WeightRows(const LinearRecord& record) : rows_(record), record_(rows_.record()) {
  if (!record.pre_quant_scale) return;
  columns_.resize(static_cast<size_t>(record.k));
  SX_CHECK(record.pre_quant_scale.info->n_elements() == record.k, "{} columns", record.k);
  floats_of(record.pre_quant_scale.info->dtype, record.pre_quant_scale.bytes().data(), record.k,
            columns_.data());
}

void WeightRows::read(int64_t row, std::vector<float>& scratch, float* out) const {
  const int64_t k = record_.k;
  const int64_t n_scales = ceil_div(k, record_.block_k);
  const int64_t row_bytes = k * dtype_bits(record_.weight.info->dtype) / 8;
  const bool is_packed = has_codes(record_.scheme);
  const std::byte* stored = record_.weight.bytes().data() + row * (is_packed ? k / 2 : row_bytes);
  const Mat<const uint8_t> codes{reinterpret_cast<const uint8_t*>(stored), 1,
                                 is_packed ? k / 2 : k};
  const std::byte* scales = nullptr;
  if (record_.scales)
    scales = record_.scales.bytes().data() +
             row / record_.block_n * n_scales * dtype_bits(record_.scales.info->dtype) / 8;
  const Mat<const uint8_t> scale_bytes{reinterpret_cast<const uint8_t*>(scales), 1, n_scales};
  const Mat<float> values{out, 1, k};
  if (record_.scheme == Scheme::kNvfp4) {
    const ScaleRange& range = range_of(record_, row);
    nvfp4_dequantize(codes, scale_bytes,
                     {range.is_divisor ? range.stored : range.g, range.is_divisor}, values,
                     record_.block_k);
  } else if (record_.scheme == Scheme::kMxfp4) {
    mxfp4_dequantize(codes, scale_bytes, values);
  } else if (is_fp8(record_.scheme)) {
    scratch.resize(static_cast<size_t>(n_scales));
    if (scales != nullptr)
      floats_of(record_.scales.info->dtype, scales, n_scales, scratch.data());
    else
      scratch.assign(scratch.size(), range_of(record_, row).g);
    fp8_dequantize(codes, {scratch.data(), 1, n_scales}, 1, record_.block_k, values);
  } else {
    floats_of(record_.weight.info->dtype, stored, k, out);
  }
  for (size_t i = 0; i < columns_.size(); ++i) out[i] *= columns_[i];
}

WeightDifference weight_difference(const std::string& module, RowSpan here, RowSpan reference,
                                   int64_t n, ThreadPool& pool) {
  const int64_t k = here.record->k;
  SX_CHECK(k == reference.record->k && k > 0, "{} and {} columns", k, reference.record->k);
  const WeightRows here_rows(*here.record);
  const WeightRows reference_rows(*reference.record);
  const int64_t slice = std::max<int64_t>(1, kSliceValues / k);
  std::vector<DifferenceSums> slices(static_cast<size_t>(ceil_div(n, slice)));
  std::vector<SliceBuffers> workers(static_cast<size_t>(pool.n_threads()));
  pool.run(static_cast<int64_t>(slices.size()), [&](int64_t task, int worker) {
    SliceBuffers& buffers = workers[static_cast<size_t>(worker)];
    buffers.here.resize(static_cast<size_t>(k));
    buffers.reference.resize(static_cast<size_t>(k));
    buffers.blocks.resize(static_cast<size_t>(ceil_div(k, kDifferenceBlock)));
    for (int64_t row = task * slice; row < std::min(n, (task + 1) * slice); ++row) {
      here_rows.read(here.row_begin + row, buffers.scratch, buffers.here.data());
      reference_rows.read(reference.row_begin + row, buffers.scratch, buffers.reference.data());
      add_row(row, k, buffers, slices[static_cast<size_t>(task)]);
    }
  });
  DifferenceSums sums;
  for (const DifferenceSums& part : slices) sums.add(part);
  for (const LinearRecord* record : {here.record, reference.record}) {
    release_pages(record->weight);
    release_pages(record->scales);
  }

  WeightDifference out;
  out.module = module;
  out.layer = name_position(module).layer;
  out.scheme = here.record->scheme;
  out.reference_scheme = reference.record->scheme;
  out.cosine = cosine_of(sums.product, sums.here2, sums.reference2);
  out.swapped_cosine = cosine_of(sums.swapped, sums.here2, sums.reference2);
  out.relative_l2 = sums.error2 == 0 ? 0 : ratio_of(sums.error2, sums.reference2);
  out.rms_ratio = ratio_of(sums.here2, sums.reference2);
  out.g = largest_multiplier(here, n);
  if (!out.g) out.g = largest_multiplier(reference, n);
  if (out.cosine > kAgainstWarnCosine) out.ratio_name = ratio_name(out.rms_ratio, out.g);
  out.n_nonfinite = sums.n_nonfinite;
  out.n_nonfinite_reference = sums.n_nonfinite_reference;
  out.worst_row = sums.worst_row;
  out.worst_block = sums.worst_block;
  out.worst_block_error = sums.worst_error;
  return out;
}

}  // namespace sextant
