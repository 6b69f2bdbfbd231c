// Dequantization bit for bit (nvfp4.md 1.6), and policies that ask for other weights: weights=f32
// and weights=bf16 must equal a plain checkpoint of exactly those values.
#include "model/weights.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/directory.h"
#include "model/model.h"
#include "model/testing/golden.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

using testing::dump_ids;
using testing::EditedCheckpoint;
using testing::golden_dir;
using testing::run_logits;
using testing::TempDir;
using testing::TestTensor;

constexpr const char* kDown = "model.layers.1.mlp.down_proj";
constexpr const char* kQ = "model.layers.1.self_attn.q_proj";

float f32_at(const TestTensor& tensor, int64_t i) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
  return value;
}

uint8_t byte_at(const TestTensor& tensor, int64_t i) {
  return static_cast<uint8_t>(tensor.bytes[static_cast<size_t>(i)]);
}

std::vector<float> dequantized(const std::string& golden, const std::string& module) {
  const auto checkpoint = Checkpoint::open(golden_dir(golden));
  EXPECT_TRUE(checkpoint.has_value());
  const LinearRecord* record = (*checkpoint)->linear(module);
  EXPECT_NE(record, nullptr);
  std::vector<float> out(static_cast<size_t>(record->n * record->k));
  dequantize_rows(*record, 0, record->n, out.data());
  return out;
}

TEST(Dequantize, nvfp4_by_multiplier) {  // d = f32(S * g), then f32(q * d)
  const EditedCheckpoint c("modelopt-llama3-separate");
  const std::string base = kDown;
  const TestTensor& codes = c.tensors.at(base + ".weight");
  const TestTensor& scales = c.tensors.at(base + ".weight_scale");
  const float g = f32_at(c.tensors.at(base + ".weight_scale_2"), 0);
  const std::vector<float> found = dequantized("modelopt-llama3-separate", kDown);
  ASSERT_EQ(found.size(), 96U * 208U);
  for (int64_t i = 0; i < static_cast<int64_t>(found.size()); ++i) {
    const float d = e4m3_decode(byte_at(scales, i / 208 * 13 + i % 208 / 16)) * g;
    const int code = byte_at(codes, i / 2) >> (i % 2 * 4) & 15;
    ASSERT_EQ(found[static_cast<size_t>(i)], kE2m1Values[code] * d) << i;
  }
}

TEST(Dequantize, nvfp4_by_divisor) {  // d = f32(S / G)
  const EditedCheckpoint c("ct-llama3-nvfp4");
  const std::string base = kDown;
  const TestTensor& codes = c.tensors.at(base + ".weight_packed");
  const TestTensor& scales = c.tensors.at(base + ".weight_scale");
  const float divisor = f32_at(c.tensors.at(base + ".weight_global_scale"), 0);
  const std::vector<float> found = dequantized("ct-llama3-nvfp4", kDown);
  ASSERT_EQ(found.size(), 96U * 208U);
  for (int64_t i = 0; i < static_cast<int64_t>(found.size()); ++i) {
    const float d = e4m3_decode(byte_at(scales, i / 208 * 13 + i % 208 / 16)) / divisor;
    const int code = byte_at(codes, i / 2) >> (i % 2 * 4) & 15;
    ASSERT_EQ(found[static_cast<size_t>(i)], kE2m1Values[code] * d) << i;
  }
}

TEST(Dequantize, fp8_in_ragged_blocks) {  // 144 x 144 in blocks of 128
  const EditedCheckpoint c("fp8-block-llama");
  const TestTensor& codes = c.tensors.at(std::string(kQ) + ".weight");
  const TestTensor& scales = c.tensors.at(std::string(kQ) + ".weight_scale_inv");
  const std::vector<float> found = dequantized("fp8-block-llama", kQ);
  ASSERT_EQ(found.size(), 144U * 144U);
  for (int64_t i = 0; i < static_cast<int64_t>(found.size()); ++i)
    ASSERT_EQ(found[static_cast<size_t>(i)],
              e4m3_decode(byte_at(codes, i)) * f32_at(scales, i / 144 / 128 * 2 + i % 144 / 128))
        << i;
}

TEST(Dequantize, fp8_by_tensor) {
  const EditedCheckpoint c("modelopt-llama-mixed");
  const TestTensor& codes = c.tensors.at(std::string(kQ) + ".weight");
  const float scale = f32_at(c.tensors.at(std::string(kQ) + ".weight_scale"), 0);
  const std::vector<float> found = dequantized("modelopt-llama-mixed", kQ);
  ASSERT_EQ(found.size(), 96U * 96U);
  for (int64_t i = 0; i < static_cast<int64_t>(found.size()); ++i)
    ASSERT_EQ(found[static_cast<size_t>(i)], e4m3_decode(byte_at(codes, i)) * scale) << i;
}

// A checkpoint with every quantized linear written out, in float32 or rounded to BF16.
void write_plain(const std::string& golden, DType dtype, const std::filesystem::path& to) {
  EditedCheckpoint c(golden);
  c.config.erase("quantization_config");
  const auto checkpoint = Checkpoint::open(golden_dir(golden));
  ASSERT_TRUE(checkpoint.has_value());
  for (const auto& [module, record] : (*checkpoint)->linears()) {
    if (!is_quantized(record.scheme)) continue;
    for (const std::string_view name : (*checkpoint)->tensors_of(record))
      c.tensors.erase(std::string(name));
    std::vector<float> values(static_cast<size_t>(record.n * record.k));
    dequantize_rows(record, 0, record.n, values.data());
    TestTensor tensor = testing::bf16_tensor({record.n, record.k}, values);
    if (dtype == DType::kF32)
      tensor = {dtype,
                {record.n, record.k},
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)};
    c.tensors[module + ".weight"] = tensor;
  }
  c.write(to);
}

std::vector<float> logits_of(const std::filesystem::path& path, const std::string& golden,
                             const char* policy, const char* isa) {
  ThreadPool pool(2);
  ModelOptions options;
  options.policies = {policy};
  options.isa = isa;
  const auto model = Model::load(path, options, pool);
  EXPECT_TRUE(model.has_value()) << model.error().text;
  if (!model) return {};
  const auto ids = dump_ids(golden)[0];
  return run_logits(**model, ids, {static_cast<int64_t>(ids.size())}, pool);
}

TEST(Weights, other_forms_are_the_plain_checkpoint_of_those_values) {
  for (const char* golden :
       {"modelopt-llama3-separate", "ct-llama3-nvfp4", "modelopt-llama-mixed", "fp8-block-llama"}) {
    TempDir f32;
    TempDir bf16;
    write_plain(golden, DType::kF32, f32.path());
    write_plain(golden, DType::kBF16, bf16.path());
    for (const Ops* ops : available_ops()) {
      EXPECT_EQ(logits_of(golden_dir(golden), golden, "f32,weights=f32", ops->name),
                logits_of(f32.path(), golden, "f32", ops->name))
          << golden << " " << ops->name;
      EXPECT_EQ(logits_of(golden_dir(golden), golden, "a16,weights=bf16", ops->name),
                logits_of(bf16.path(), golden, "a16", ops->name))
          << golden << " " << ops->name;
    }
  }
}

}  // namespace
}  // namespace sextant
