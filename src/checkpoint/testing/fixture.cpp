// See fixture.h.
#include "checkpoint/testing/fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "checkpoint/row_order.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/ue8m0.h"

namespace sextant::testing {
namespace {

constexpr std::string_view kLin = "model.layers.0.mlp.down_proj";

int64_t product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

int64_t bits_of(std::string_view dtype) {
  if (dtype == "F4") return 4;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 32;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 16;
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 64;
  return 8;
}

float scale_value(const TensorRef& scales, size_t i) {
  const auto bytes = scales.bytes();
  const auto byte =
      static_cast<uint8_t>(bytes[bits_of(dtype_name(scales.info->dtype)) == 8 ? i : 0]);
  switch (scales.info->dtype) {
    case DType::kF8E4M3: return e4m3_decode(byte);
    case DType::kF8E8M0: return ue8m0_decode(byte);
    case DType::kBF16: {
      uint16_t half = 0;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      return bf16_to_f32(half);
    }
    default: {
      float value = 0;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      return value;
    }
  }
}

float stored_value(const LinearRecord& record, size_t i) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(record.weight.bytes().data());
  switch (record.scheme) {
    case Scheme::kNvfp4:
    case Scheme::kMxfp4: return e2m1_decode(nibble(bytes, static_cast<int64_t>(i)));
    case Scheme::kFp8Tensor:
    case Scheme::kFp8Channel:
    case Scheme::kFp8Block: return e4m3_decode(bytes[i]);
    case Scheme::kF32: {
      float value = 0;
      std::memcpy(&value, bytes + 4 * i, 4);
      return value;
    }
    default: {
      uint16_t half = 0;
      std::memcpy(&half, bytes + 2 * i, 2);
      return record.scheme == Scheme::kF16 ? fp16_to_f32(half) : bf16_to_f32(half);
    }
  }
}

// Its own, since what it gives is compared with what the readers give.
const ScaleRange* fixture_range(const LinearRecord& record, int64_t row) {
  for (const ScaleRange& range : record.ranges)
    if (row >= range.row_begin && row < range.row_end) return &range;
  return nullptr;
}

}  // namespace

CheckpointFixture::CheckpointFixture() {
  std::string name = (std::filesystem::temp_directory_path() / "sextant-test-XXXXXX").string();
  SX_CHECK(::mkdtemp(name.data()) != nullptr, "no temporary directory");
  dir_ = std::filesystem::canonical(name);
}

CheckpointFixture::~CheckpointFixture() {
  std::error_code error;
  std::filesystem::remove_all(dir_, error);
}

void CheckpointFixture::fill(const std::string& name, const std::string& dtype,
                             std::vector<int64_t> shape, uint8_t byte) {
  const auto n_bytes = static_cast<size_t>(product(shape) * bits_of(dtype) / 8);
  add(name, dtype, std::move(shape), std::vector<uint8_t>(n_bytes, byte));
}

void CheckpointFixture::add(const std::string& name, const std::string& dtype,
                            std::vector<int64_t> shape, std::vector<uint8_t> bytes) {
  remove(name);
  tensors_.push_back({name, dtype, std::move(shape), std::move(bytes)});
}

void CheckpointFixture::add_f32(const std::string& name, std::vector<int64_t> shape,
                                const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  add(name, "F32", std::move(shape), std::move(bytes));
}

void CheckpointFixture::add_bf16(const std::string& name, std::vector<int64_t> shape,
                                 const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = f32_to_bf16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  add(name, "BF16", std::move(shape), std::move(bytes));
}

void CheckpointFixture::add_bf16(const std::string& name, std::vector<int64_t> shape, float value) {
  const std::vector<float> values(static_cast<size_t>(product(shape)), value);
  add_bf16(name, std::move(shape), values);
}

void CheckpointFixture::remove(std::string_view name) {
  std::erase_if(tensors_, [&](const FixtureTensor& t) { return t.name == name; });
}

void CheckpointFixture::rename(std::string_view name, const std::string& to) {
  tensor(name).name = to;
}

FixtureTensor& CheckpointFixture::tensor(std::string_view name) {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(),
                               [&](const FixtureTensor& t) { return t.name == name; });
  SX_CHECK(it != tensors_.end(), "the fixture has no tensor {}", name);
  return *it;
}

void CheckpointFixture::add_linear(const std::string& module, int64_t n, int64_t k,
                                   bool input_scale) {
  fill(module + ".weight", "U8", {n, k / 2}, 0x21);
  fill(module + ".weight_scale", "F8_E4M3", {n, (k + 15) / 16}, 0x38);
  add_f32(module + ".weight_scale_2", {}, {0.5F});
  if (input_scale) add_f32(module + ".input_scale", {}, {0.25F});
}

void CheckpointFixture::write_file(const std::string& name, std::string_view content) {
  const std::filesystem::path path = dir_ / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  SX_CHECK(out.good(), "cannot write {}", path.string());
}

std::filesystem::path CheckpointFixture::write(const std::string& file_name) {
  std::vector<const FixtureTensor*> all;
  for (const FixtureTensor& t : tensors_) all.push_back(&t);
  write_file(file_name, safetensors_bytes(all));
  return dir_;
}

std::filesystem::path CheckpointFixture::write_shard(const std::string& file_name,
                                                     const std::vector<std::string>& names) {
  std::vector<const FixtureTensor*> some;
  for (const std::string& name : names) some.push_back(&tensor(name));
  write_file(file_name, safetensors_bytes(some));
  return dir_;
}

std::string safetensors_bytes(const std::vector<const FixtureTensor*>& tensors) {
  std::string header = "{";
  std::string data;
  for (const FixtureTensor* t : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", t->name, t->dtype, fmt::join(t->shape, ","),
                          data.size(), data.size() + t->bytes.size());
    data.append(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size());
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  return file + header + data;
}

void add_f_lin(CheckpointFixture& fixture) { fixture.add_linear(std::string(kLin), 4, 32); }

void add_f_lin_ct(CheckpointFixture& fixture) {
  const std::string module(kLin);
  fixture.fill(module + ".weight_packed", "U8", {4, 16}, 0x21);
  fixture.fill(module + ".weight_scale", "F8_E4M3", {4, 2}, 0x38);
  fixture.add_f32(module + ".weight_global_scale", {1}, {2.0F});
  fixture.add_f32(module + ".input_global_scale", {1}, {4.0F});
}

void add_f_moe(CheckpointFixture& fixture, bool input_scales) {
  for (int expert = 0; expert < 8; ++expert)
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      fixture.add_linear(fmt::format("model.layers.0.mlp.experts.{}.{}", expert, part), 32, 32,
                         input_scales);
  std::vector<float> router(8 * 32);
  for (size_t i = 0; i < router.size(); ++i)
    router[i] = static_cast<float>(i / 32) + static_cast<float>(i % 32) / 64.0F;
  fixture.add_bf16("model.layers.0.mlp.gate.weight", {8, 32}, router);
}

std::vector<float> dequantized(const LinearRecord& stored) {
  const RowOrdered rows(stored);
  const LinearRecord& record = rows.record();
  std::vector<float> out(static_cast<size_t>(record.n * record.k));
  for (int64_t row = 0; row < record.n; ++row) {
    for (int64_t column = 0; column < record.k; ++column) {
      const auto i = static_cast<size_t>(row * record.k + column);
      float scale = 1.0F;
      if (record.scales) {
        const int64_t scale_columns = (record.k + record.block_k - 1) / record.block_k;
        scale = scale_value(
            record.scales,
            static_cast<size_t>((row / record.block_n) * scale_columns + column / record.block_k));
      }
      if (const ScaleRange* range = fixture_range(record, row))
        scale = range->is_divisor ? scale / range->stored : scale * range->g;
      const float value = stored_value(record, i);
      out[i] = is_quantized(record.scheme) ? value * scale : value;
    }
  }
  return out;
}

}  // namespace sextant::testing
