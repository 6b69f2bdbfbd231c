// Names of schemes and the per-row form of global scales.
#include "checkpoint/record.h"

#include <algorithm>

namespace sextant {

std::string_view scheme_name(Scheme scheme) {
  switch (scheme) {
    case Scheme::kF32: return "f32";
    case Scheme::kF16: return "f16";
    case Scheme::kBf16: return "bf16";
    case Scheme::kFp8Tensor: return "fp8-tensor";
    case Scheme::kFp8Channel: return "fp8-channel";
    case Scheme::kFp8Block: return "fp8-block";
    case Scheme::kNvfp4: return "nvfp4";
    case Scheme::kMxfp4: return "mxfp4";
  }
  return "unknown";
}

std::vector<float> row_multipliers(const LinearRecord& record) {
  if (record.ranges.empty()) return {};
  std::vector<float> rows(static_cast<size_t>(record.n), 0.0F);
  for (const ScaleRange& range : record.ranges)
    std::fill(rows.begin() + range.row_begin, rows.begin() + range.row_end, range.g);
  return rows;
}

const ScaleRange& range_of(const LinearRecord& record, int64_t row) {
  static const ScaleRange one;
  for (const ScaleRange& range : record.ranges)
    if (row >= range.row_begin && row < range.row_end) return range;
  return one;
}

void release_pages(const TensorRef& tensor) {
  if (tensor) release_pages(tensor, 0, tensor.info->n_bytes());
}

void release_pages(const TensorRef& tensor, int64_t begin, int64_t end) {
  constexpr int64_t kAround = 64 << 10;  // a fault of Linux maps as much as this
  if (!tensor || tensor.converted != nullptr) return;
  const int64_t base = tensor.info->begin;
  tensor.file->file().release(base + begin - kAround, base + end + kAround);
}

}  // namespace sextant
