#include "cli/tensor_stats.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/row_order.h"
#include "cli/format.h"
#include "model/weights.h"
#include "quant/convert.h"

namespace sextant {
namespace {

constexpr int64_t kChunk = 1 << 16;

// Sums in float64, value by value in the order of the tensor.
class Sums {
 public:
  Sums(TensorStats& stats, int64_t n_first) : stats_(stats), n_first_(n_first) {}

  void add(const float* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float value = values[i];
      if (static_cast<int64_t>(stats_.first.size()) < n_first_) stats_.first.push_back(value);
      ++stats_.n;
      if (std::isnan(value)) {
        ++stats_.n_nan;
      } else if (std::isinf(value)) {
        ++stats_.n_inf;
      } else {
        add_finite(value);
      }
    }
  }

  void finish() {
    if (n_finite_ == 0) return;
    stats_.mean = sum_ / static_cast<double>(n_finite_);
    stats_.rms = std::sqrt(sum2_ / static_cast<double>(n_finite_));
  }

 private:
  void add_finite(double value) {
    stats_.min = n_finite_ == 0 ? value : std::min(stats_.min, value);
    stats_.max = n_finite_ == 0 ? value : std::max(stats_.max, value);
    stats_.n_zero += value == 0 ? 1 : 0;
    sum_ += value;
    sum2_ += value * value;
    ++n_finite_;
  }

  TensorStats& stats_;
  int64_t n_first_;
  int64_t n_finite_ = 0;
  double sum_ = 0;
  double sum2_ = 0;
};

TensorStats linear_stats(const LinearRecord& stored, int64_t n_first) {
  const RowOrdered rows_of(stored);
  const LinearRecord& record = rows_of.record();
  TensorStats stats;
  stats.name = record.module;
  stats.kind = scheme_name(record.scheme);
  stats.shape = {record.n, record.k};
  Sums sums(stats, n_first);
  const int64_t rows = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, record.k));
  std::vector<float> values(static_cast<size_t>(rows * record.k));
  for (int64_t row = 0; row < record.n; row += rows) {
    const int64_t n = std::min(rows, record.n - row);
    dequantize_rows(record, row, n, values.data());
    sums.add(values.data(), n * record.k);
  }
  sums.finish();
  return stats;
}

Result<TensorStats> stored_stats(const TensorRef& tensor, int64_t n_first) {
  TensorStats stats;
  stats.name = tensor.info->name;
  stats.kind = dtype_name(tensor.info->dtype);
  stats.shape = tensor.info->shape;
  Sums sums(stats, n_first);
  const int64_t n = tensor.info->n_elements();
  const std::span<const std::byte> bytes = tensor.bytes();
  std::vector<float> values(static_cast<size_t>(std::min(n, kChunk)));
  const int64_t bits = dtype_bits(tensor.info->dtype);
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    if (!stored_to_f32(tensor.info->dtype, bytes.data() + begin * bits / 8, count, values.data()))
      return fail_at({{}, stats.name, {}, {}}, Code::kUnsupported,
                     "{} holds packed {} codes, which are numbers only with their scales: ask for "
                     "the module (the name without its last part)",
                     stats.name, stats.kind);
    sums.add(values.data(), count);
  }
  sums.finish();
  return stats;
}

}  // namespace

Result<TensorStats> tensor_stats(const Checkpoint& checkpoint, const std::string& name,
                                 int64_t n_first) {
  if (const LinearRecord* linear = checkpoint.linear(name)) return linear_stats(*linear, n_first);
  if (const TensorRef tensor = checkpoint.tensor(name)) return stored_stats(tensor, n_first);
  std::vector<std::string> names;
  for (const auto& [known, tensor] : checkpoint.tensors()) names.emplace_back(known);
  for (const auto& [module, linear] : checkpoint.linears()) names.push_back(module);
  const std::vector<std::string> close = close_matches(name, names);
  return fail_at({{}, name, {}, {}}, Code::kUsage, "no tensor or linear \"{}\" among {} tensors{}",
                 name, checkpoint.tensors().size(),
                 close.empty() ? "" : "; did you mean " + join(close, " or ") + "?");
}

}  // namespace sextant
