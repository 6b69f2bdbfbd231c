// Chunks of values over the pool; what is equal byte for byte is never converted.
#include "doctor/plain_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/checked.h"
#include "doctor/weight_difference.h"
#include "quant/convert.h"

namespace sextant {
namespace {

constexpr int64_t kPlainChunk = 1 << 16;
// Two dtypes of one value: BF16 rounds by at most 2^-9 of it, F16 by 2^-25 where it is subnormal.
constexpr double kRoundingShare = 0x1p-8;
constexpr double kRoundingLeast = 0x1p-24;

bool is_plain_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

std::string form_of(const TensorInfo& info) {
  return fmt::format("{} [{}]", dtype_name(info.dtype), fmt::join(info.shape, ", "));
}

struct ChunkSums {
  int64_t n_different = 0;
  int64_t first = -1;
  double error2 = 0;
  double reference2 = 0;
};

ChunkSums chunk_sums(const std::vector<float>& here, const std::vector<float>& reference, int64_t n,
                     int64_t begin, bool rounded) {
  ChunkSums sums;
  for (int64_t i = 0; i < n; ++i) {
    const double a = here[static_cast<size_t>(i)];
    const double b = reference[static_cast<size_t>(i)];
    if (std::isfinite(b)) sums.reference2 += b * b;
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error = std::abs(a - b);
    if (rounded && error <= std::max(kRoundingShare * std::abs(b), kRoundingLeast)) continue;
    if (sums.n_different++ == 0) sums.first = begin + i;
    sums.error2 += std::isfinite(error) ? error * error : std::numeric_limits<double>::infinity();
  }
  return sums;
}

void compare_values(const TensorRef& here, const TensorRef& reference, PlainDifference& out,
                    ThreadPool& pool) {
  const DType dtype = here.info->dtype;
  const DType reference_dtype = reference.info->dtype;
  const std::span<const std::byte> a = here.bytes();
  const std::span<const std::byte> b = reference.bytes();
  out.n = here.info->n_elements();
  if (dtype == reference_dtype && std::ranges::equal(a, b)) return;
  std::vector<ChunkSums> chunks(static_cast<size_t>(ceil_div(out.n, kPlainChunk)));
  pool.run(static_cast<int64_t>(chunks.size()), [&](int64_t chunk, int) {
    const int64_t begin = chunk * kPlainChunk;
    const int64_t n = std::min(kPlainChunk, out.n - begin);
    std::vector<float> x(static_cast<size_t>(n));
    std::vector<float> y(static_cast<size_t>(n));
    const bool known =
        stored_to_f32(dtype, a.data() + begin * dtype_bits(dtype) / 8, n, x.data()) &&
        stored_to_f32(reference_dtype, b.data() + begin * dtype_bits(reference_dtype) / 8, n,
                      y.data());
    SX_CHECK(known, "{} and {}", dtype_name(dtype), dtype_name(reference_dtype));
    chunks[static_cast<size_t>(chunk)] = chunk_sums(x, y, n, begin, dtype != reference_dtype);
  });
  ChunkSums sums;
  for (const ChunkSums& chunk : chunks) {
    if (sums.n_different == 0) sums.first = chunk.first;
    sums.n_different += chunk.n_different;
    sums.error2 += chunk.error2;
    sums.reference2 += chunk.reference2;
  }
  out.n_different = sums.n_different;
  out.first_different = sums.first;
  if (sums.error2 > 0)
    out.relative_l2 = sums.reference2 > 0 ? std::sqrt(sums.error2 / sums.reference2)
                                          : std::numeric_limits<double>::infinity();
}

// Names that the records do not account for, and that somebody has to use.
class PlainNames {
 public:
  explicit PlainNames(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    for (const auto& [module, record] : checkpoint.linears())
      for (const std::string_view name : checkpoint.tensors_of(record)) of_linears_.insert(name);
  }

  bool is_plain(std::string_view name) const {
    return !of_linears_.contains(name) && !checkpoint_.harmless_tensors().contains(name);
  }

  // Whether the other side should have it: not the scale of a linear that could not be read.
  bool counts(std::string_view name, const TensorInfo& info) const {
    const std::string_view last = name.substr(name.rfind('.') + 1);
    return is_plain(name) && is_plain_float(info.dtype) &&
           last.find("scale") == std::string_view::npos;
  }

 private:
  const Checkpoint& checkpoint_;
  std::set<std::string_view> of_linears_;
};

PlainDifference difference_of(std::string_view name, const TensorRef& here,
                              const TensorRef& reference, ThreadPool& pool) {
  PlainDifference out;
  out.name = name;
  out.form = form_of(*here.info);
  out.reference_form = form_of(*reference.info);
  const DType dtype = here.info->dtype;
  const bool same = dtype == reference.info->dtype;
  const bool floats = is_plain_float(dtype) && is_plain_float(reference.info->dtype);
  // Bytes may be codes, whose values need scales: they are equal or nothing can be said.
  const bool bytes = same && dtype_bits(dtype) <= 8;
  if (!floats && !same) {
    out.kind = PlainDifference::Kind::kNotComparable;
  } else if (here.info->shape != reference.info->shape) {
    out.kind = PlainDifference::Kind::kShape;
  } else if (bytes && !std::ranges::equal(here.bytes(), reference.bytes())) {
    out.kind = PlainDifference::Kind::kNotComparable;
  } else {
    compare_values(here, reference, out, pool);
    release_pages(here);
    release_pages(reference);
  }
  return out;
}

}  // namespace

PlainComparison compare_plain(const Checkpoint& checkpoint, const Checkpoint& reference,
                              ThreadPool& pool) {
  PlainComparison out;
  const PlainNames here(checkpoint);
  const PlainNames there(reference);
  for (const auto& [name, ref] : checkpoint.tensors()) {
    const TensorRef other = reference.tensor(name);
    if (other && here.is_plain(name) && there.is_plain(name))
      out.tensors.push_back(difference_of(name, ref, other, pool));
    else if (!other && here.counts(name, *ref.info))
      out.only_here.emplace_back(name);
  }
  for (const auto& [name, ref] : reference.tensors())
    if (there.counts(name, *ref.info) && !checkpoint.tensor(name))
      out.only_reference.emplace_back(name);
  return out;
}

}  // namespace sextant
