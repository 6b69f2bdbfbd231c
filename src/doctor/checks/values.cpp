#include "doctor/checks/values.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/cpu_info.h"
#include "checkpoint/dialects/dialect.h"

namespace sextant {
namespace {

constexpr int64_t kPiece = 4096;

// NaN and infinity have every exponent bit. One whole piece, so that the loop has a fixed length
// and no branch, in lanes as wide as the numbers: what a compiler turns into vectors.
template <class T>
[[gnu::always_inline]] inline int64_t hits_in_piece(const std::byte* bytes, T exponent) {
  T values[kPiece];
  std::memcpy(values, bytes, sizeof values);
  constexpr int64_t kRun = 128;  // a byte counts no further than 255
  int64_t hits = 0;
  for (int64_t run = 0; run < kPiece; run += kRun) {
    T sum = 0;
    for (int64_t i = run; i < run + kRun; ++i)
      sum = static_cast<T>(sum + ((values[i] & exponent) == exponent ? 1 : 0));
    hits += static_cast<int64_t>(sum);
  }
  return hits;
}
template <class T>
[[gnu::target("avx2")]] int64_t hits_avx2(const std::byte* bytes, T exponent) {
  return hits_in_piece(bytes, exponent);
}
template <class T>
int64_t hits_plain(const std::byte* bytes, T exponent) {
  return hits_in_piece(bytes, exponent);
}

template <class T>
NonFinite count_masked(const std::byte* bytes, int64_t begin, int64_t end, T exponent) {
  const auto hits_in = cpu_info().avx2 ? hits_avx2<T> : hits_plain<T>;
  NonFinite out;
  for (int64_t at = begin; at < end; at += kPiece) {
    const std::byte* piece = bytes + at * static_cast<int64_t>(sizeof(T));
    const int64_t n = std::min(kPiece, end - at);
    if (n == kPiece && hits_in(piece, exponent) == 0) continue;
    for (int64_t i = 0; i < n; ++i) {
      T value = 0;
      std::memcpy(&value, piece + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
      if ((value & exponent) != exponent) continue;
      if (out.count++ == 0) out.first = at + i;
    }
  }
  return out;
}

}  // namespace

bool holds_floats(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32 ||
         dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

NonFinite count_non_finite(const TensorRef& tensor, int64_t begin, int64_t end) {
  const std::byte* bytes = tensor.bytes().data();
  switch (tensor.info->dtype) {
    case DType::kBF16: return count_masked<uint16_t>(bytes, begin, end, 0x7F80);
    case DType::kF16: return count_masked<uint16_t>(bytes, begin, end, 0x7C00);
    case DType::kF32: return count_masked<uint32_t>(bytes, begin, end, 0x7F800000U);
    case DType::kF8E4M3: return count_masked<uint8_t>(bytes, begin, end, 0x7F);
    case DType::kF8E5M2: return count_masked<uint8_t>(bytes, begin, end, 0x7C);
    default: return {};
  }
}

void report_non_finite(CheckContext& context, const TensorRef& tensor, const NonFinite& found) {
  if (found.count == 0) return;
  const TensorInfo& info = *tensor.info;
  Finding f = about_tensor(
      tensor, "F4", "non-finite-weight", Severity::kError,
      fmt::format("{}: {} of its {} numbers {} NaN or infinite, the first at element {}",
                  tensor_text(tensor), found.count, info.n_elements(),
                  found.count == 1 ? "is" : "are", found.first),
      "take the checkpoint from its source again");
  std::vector<int64_t> index;
  int64_t rest = found.first;
  for (size_t i = info.shape.size(); i-- > 0;) {
    index.insert(index.begin(), rest % info.shape[i]);
    rest /= info.shape[i];
  }
  f.index = index;
  f.offset = info.begin + found.first * (dtype_bits(info.dtype) / 8);
  f.count = found.count;
  f.expected = "finite numbers";
  context.findings.add(std::move(f), static_cast<double>(found.count));
}

}  // namespace sextant
