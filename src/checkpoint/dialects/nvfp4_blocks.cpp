// Codes and block scales of NVFP4, checked once for all dialects: shapes with their likely causes
// when they do not fit, and the stored forms that are brought into E4M3 per 16 columns.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/checked.h"
#include "checkpoint/dialects/dialect.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

// Why a block-scale tensor has the shape it has, as far as one can tell.
std::string likely_cause(const TensorInfo& scales, int64_t n, int64_t k, const TensorRef& weight) {
  const int64_t columns = ceil_div(k, 16);
  const int64_t swizzled = round_up(n, 128) * round_up(columns, 4);
  const bool is_swizzled_size =
      scales.n_elements() == swizzled && (scales.shape.size() != 2 || scales.shape[0] != n);
  if (is_swizzled_size)
    return "; this is the size of a runtime's swizzled (128x4, padded) scales, not of a "
           "checkpoint's";
  if (scales.shape.size() != 2) return "";
  if (scales.shape[0] == columns && scales.shape[1] == n && n != columns)
    return "; the scales are transposed";
  if (scales.shape[0] != n) return "; the scales belong to another layer or to padded rows";
  const auto bytes = weight.bytes().first(std::min<size_t>(weight.bytes().size(), 4096));
  const bool unpacked = std::all_of(bytes.begin(), bytes.end(),
                                    [](std::byte b) { return static_cast<uint8_t>(b) < 16; });
  if (2 * scales.shape[1] == columns || ceil_div(k / 2, 16) == scales.shape[1])
    return unpacked ? "; the weight is twice as wide as its scales say and every byte is below 16: "
                      "codes stored one a byte"
                    : "; half of them: an exporter counted groups from the packed width, or the "
                      "weight is twice as wide as it should be";
  if (scales.shape[1] == 2 * columns) return "; the weight is half as wide as its scales say";
  return "";
}

std::optional<uint8_t> exact_e4m3(float value) {
  for (int byte = 0; byte < 256; ++byte) {
    const float decoded = e4m3_decode(static_cast<uint8_t>(byte));
    if (decoded == value && std::signbit(decoded) == std::signbit(value))
      return static_cast<uint8_t>(byte);
  }
  return std::nullopt;
}

// Float32 scales of a checkpoint that kept them unrounded in type but not in value.
bool narrow_f32_scales(const TensorRef& scales, DialectContext& context, TensorRef& narrowed) {
  const auto bytes = scales.bytes();
  std::vector<std::byte> data(bytes.size() / 4);
  for (size_t i = 0; i < data.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    const auto byte = exact_e4m3(value);
    if (!byte) {
      const int64_t columns = scales.info->shape[1];
      Finding f = finding_at(
          "C15", "scale-dtype", Severity::kError, scales,
          fmt::format("{}: expected block scales that E4M3 holds exactly, found {} at row {}, "
                      "group {}",
                      tensor_text(scales), value_text(value), static_cast<int64_t>(i) / columns,
                      static_cast<int64_t>(i) % columns),
          "export the scales as F8_E4M3");
      f.index = {static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns};
      f.value = value;
      context.findings.add(std::move(f));
      return false;
    }
    data[i] = static_cast<std::byte>(*byte);
  }
  narrowed = converted(scales, DType::kF8E4M3, scales.info->shape, std::move(data), context);
  return true;
}

// Groups of 32 become two equal groups of 16: the same values.
TensorRef split_groups_of_32(const TensorRef& scales, int64_t n, int64_t k,
                             DialectContext& context) {
  const auto bytes = scales.bytes();
  const auto columns = static_cast<size_t>(ceil_div(k, 16));
  const auto stored = static_cast<size_t>(scales.info->shape[1]);
  std::vector<std::byte> data(static_cast<size_t>(n) * columns);
  for (size_t row = 0; row < static_cast<size_t>(n); ++row)
    for (size_t j = 0; j < columns; ++j) data[row * columns + j] = bytes[row * stored + j / 2];
  return converted(scales, DType::kF8E4M3, {n, static_cast<int64_t>(columns)}, std::move(data),
                   context);
}

}  // namespace

int64_t declared_group_size(const std::string& module, const QuantConfig& quant) {
  const auto it = quant.layers.find(module);
  if (it != quant.layers.end() && it->second.group_size != 0) return it->second.group_size;
  if (quant.whole.group_size != 0) return quant.whole.group_size;
  int64_t size = 0;
  for (const QuantGroup& group : quant.groups)
    if (group.declared.scheme == Scheme::kNvfp4) size = std::max(size, group.declared.group_size);
  return size;
}

bool read_nvfp4_blocks(const ModuleTensors& tensors, const TensorRef& weight,
                       const TensorRef& scales, DialectContext& context, LinearRecord& record) {
  const auto shape = codes_shape(*weight.info);
  if (!shape || shape->first == 0 || shape->second == 0) {
    context.findings.add(finding_at("C15", "empty-weight", Severity::kError, weight,
                                    fmt::format("{}: expected a matrix of codes, found {}",
                                                tensor_text(weight), shape_text(*weight.info)),
                                    "export the checkpoint again"));
    return false;
  }
  const auto [n, k] = *shape;
  if (k % 16 != 0 && k % 16 != 8) {
    context.findings.add(
        finding_at("C17", "group-size", Severity::kError, weight,
                   fmt::format("{}: K is {}, which neither groups of 16 nor a last group of 8 fill",
                               tensor_text(weight), k),
                   "export the checkpoint with K a multiple of 16"));
    return false;
  }
  const int64_t group_size = declared_group_size(tensors.module, context.quant);
  const int64_t columns = ceil_div(k, 16);
  const std::vector<int64_t> expected = {n, columns};
  const std::vector<int64_t> expected_32 = {n, ceil_div(k, 32)};
  const bool of_32 =
      group_size == 32 && scales.info->shape == expected_32 && expected_32 != expected;
  if (scales.info->shape != expected && !of_32) {
    Finding f = finding_at(
        "C17", "group-size", Severity::kError, scales,
        fmt::format("{}: K is {} ({} bytes a row), so {} groups of 16{} are expected, shape [{}, "
                    "{}], found {}{}",
                    tensor_text(scales), k, k / 2, columns, k % 16 == 0 ? "" : " (the last of 8)",
                    n, columns, shape_text(*scales.info), likely_cause(*scales.info, n, k, weight)),
        "export the checkpoint again, with linear (not swizzled) scales, one per 16 columns");
    f.expected = fmt::format("[{}, {}]", n, columns);
    context.findings.add(std::move(f));
    return false;
  }
  record.scheme = Scheme::kNvfp4;
  record.n = n;
  record.k = k;
  record.weight = weight;
  record.scales = scales;
  record.block_n = 1;
  record.block_k = 16;
  if (scales.info->dtype == DType::kF32) {
    if (!narrow_f32_scales(scales, context, record.scales)) return false;
  } else if (scales.info->dtype != DType::kF8E4M3) {
    context.findings.add(
        finding_at("C15", "scale-dtype", Severity::kError, scales,
                   fmt::format("{}: expected block scales of dtype F8_E4M3, found {}",
                               tensor_text(scales), shape_text(*scales.info)),
                   "export the scales as F8_E4M3"));
    return false;
  }
  if (of_32) record.scales = split_groups_of_32(record.scales, n, k, context);
  return true;
}

}  // namespace sextant
