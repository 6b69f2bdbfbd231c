#include "io/safetensors_writer.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "io/ordered_json.h"
#include "io/quote.h"
#include "io/safetensors.h"
#include "io/utf8.h"

namespace sextant {
namespace {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // what every reader accepts; ours takes more
constexpr int64_t kDataAlignment = 64;

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const int n = decode_utf8(text, i).n_bytes;
    if (n == 0) return false;
    i += static_cast<size_t>(n);
  }
  return true;
}

std::string json_string(std::string_view text) { return Json(text).dump(); }

Result<int64_t> byte_size(const TensorSpec& tensor) {
  const auto n = checked_product(tensor.shape);
  const auto bits = n ? checked_mul(*n, dtype_bits(tensor.dtype)) : std::nullopt;
  if (!bits)
    return fail(Code::kInput, "tensor {}: shape overflow: [{}] of {}", quote_name(tensor.name),
                fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype));
  if (*bits % 8 != 0)
    return fail(Code::kInput, "tensor {}: not a whole number of bytes: {} elements of {}",
                quote_name(tensor.name), *n, dtype_name(tensor.dtype));
  return *bits / 8;
}

Status check_names(const std::vector<TensorSpec>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && names[i] == names[i - 1])
      return fail(Code::kInput, "expected every tensor once, found {} twice", quote_name(names[i]));
    if (names[i] == "__metadata__" || !is_utf8(names[i]))
      return fail(Code::kInput,
                  "expected a tensor name in UTF-8 other than '__metadata__', found {}",
                  quote_name(names[i]));
  }
  return {};
}

}  // namespace

Result<SafetensorsLayout> SafetensorsLayout::make(
    std::vector<TensorSpec> tensors, const std::map<std::string, std::string>& metadata) {
  SX_TRY(check_names(tensors));
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return dtype_bits(tensors[a].dtype) > dtype_bits(tensors[b].dtype);
  });

  SafetensorsLayout layout;
  layout.begin_.resize(tensors.size());
  layout.n_bytes_.resize(tensors.size());
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata) {
      if (!is_utf8(key) || !is_utf8(text))
        return fail(Code::kInput, "expected metadata in UTF-8, found key {}", quote_name(key));
      json += (json.back() == '{' ? "" : ",") + json_string(key) + ":" + json_string(text);
    }
    json += "}";
  }
  int64_t at = 0;
  for (const size_t i : order) {
    SX_ASSIGN(const int64_t n_bytes, byte_size(tensors[i]));
    const auto end = checked_add(at, n_bytes);
    if (!end || *end > INT64_MAX - 2 * kMaxHeaderBytes)
      return fail(Code::kInput, "tensor {}: the file would be larger than 2^63 bytes",
                  quote_name(tensors[i].name));
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json.size() == 1 ? "" : ",", json_string(tensors[i].name),
                        dtype_name(tensors[i].dtype), fmt::join(tensors[i].shape, ","), at, *end);
    layout.begin_[i] = at;
    layout.n_bytes_[i] = n_bytes;
    at = *end;
  }
  json += "}";
  const int64_t data_begin =
      round_up(kSafetensorsLengthBytes + static_cast<int64_t>(json.size()), kDataAlignment);
  if (data_begin - kSafetensorsLengthBytes > kMaxHeaderBytes)
    return fail(Code::kInput,
                "the header of {} tensors would be {} bytes, readers accept at most {}: use more "
                "files",
                tensors.size(), data_begin - kSafetensorsLengthBytes, kMaxHeaderBytes);
  json.resize(static_cast<size_t>(data_begin - kSafetensorsLengthBytes), ' ');
  for (int64_t& begin : layout.begin_) begin += data_begin;
  for (int i = 0; i < kSafetensorsLengthBytes; ++i)
    layout.header_ += static_cast<char>(json.size() >> (8 * i) & 0xFFU);
  layout.header_ += json;
  layout.file_bytes_ = data_begin + at;
  layout.tensors_ = std::move(tensors);
  return layout;
}

SafetensorsWriter::SafetensorsWriter(OutputFile file, SafetensorsLayout layout)
    : file_(std::move(file)),
      layout_(std::move(layout)),
      n_written_(new std::atomic<int64_t>[layout_.tensors().size()]()) {}

Result<SafetensorsWriter> SafetensorsWriter::create(AtomicDir& dir, std::string_view file_name,
                                                    SafetensorsLayout layout) {
  SX_ASSIGN(OutputFile file, dir.create_file(file_name));
  SX_TRY(file.reserve(layout.file_bytes()));
  SX_TRY(file.write_at(0, std::as_bytes(std::span<const char>(layout.header()))));
  return SafetensorsWriter(std::move(file), std::move(layout));
}

Status SafetensorsWriter::write(int64_t tensor_idx, int64_t offset,
                                std::span<const std::byte> bytes) {
  const auto n = static_cast<int64_t>(bytes.size());
  SX_CHECK(offset >= 0 && n <= layout_.n_bytes(tensor_idx) - offset,
           "bytes [{}, {} + {}) of {} of tensor {}", offset, offset, n, layout_.n_bytes(tensor_idx),
           tensor_idx);
  SX_TRY(file_.write_at(layout_.begin(tensor_idx) + offset, bytes));
  n_written_[static_cast<size_t>(tensor_idx)].fetch_add(n, std::memory_order_relaxed);
  return {};
}

Status SafetensorsWriter::write(int64_t tensor_idx, std::span<const std::byte> bytes) {
  SX_CHECK(static_cast<int64_t>(bytes.size()) == layout_.n_bytes(tensor_idx),
           "{} bytes for tensor {} of {}", bytes.size(), tensor_idx, layout_.n_bytes(tensor_idx));
  return write(tensor_idx, 0, bytes);
}

Status SafetensorsWriter::finish() {
  for (size_t i = 0; i < layout_.tensors().size(); ++i)
    SX_CHECK(n_written_[i].load() == layout_.n_bytes(static_cast<int64_t>(i)),
             "tensor {} got {} of {} bytes", layout_.tensors()[i].name, n_written_[i].load(),
             layout_.n_bytes(static_cast<int64_t>(i)));
  return file_.finish();
}

}  // namespace sextant
