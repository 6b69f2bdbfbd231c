// Quantizing small checkpoints from file to file: bytes against the block quantizers (which have
// their own proofs), groups, dialects, what stays, and every refusal.
#include "forge/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "forge/quantize_plan.h"
#include "io/atomic_dir.h"
#include "io/safetensors_writer.h"
#include "quant/bf16.h"
#include "quant/convert.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class QuantizeTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           fmt::format("sextant_quantize_{}_{}", getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // A matrix or vector of BF16 values; Gaussian-like, another for every name.
  void add(const std::string& name, std::vector<int64_t> shape, float magnitude = 0.05F) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    std::vector<float> x(static_cast<size_t>(n));
    uint32_t state = static_cast<uint32_t>(std::hash<std::string>()(name)) | 1U;
    for (float& value : x) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) {
        state = state * 1664525U + 1013904223U;
        sum += static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
      }
      value = round_to_bf16(sum * magnitude);
    }
    tensors_[name] = {std::move(shape), std::move(x)};
  }

  void add_layer(int layer, float magnitude = 0.05F) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    add(p + "self_attn.q_proj.weight", {32, 64}, magnitude);
    add(p + "self_attn.k_proj.weight", {16, 64}, magnitude * 3);
    add(p + "self_attn.v_proj.weight", {16, 64}, magnitude / 2);
    add(p + "self_attn.o_proj.weight", {64, 32}, magnitude);
    add(p + "mlp.gate_proj.weight", {96, 64}, magnitude);
    add(p + "mlp.up_proj.weight", {96, 64}, magnitude * 2);
    add(p + "mlp.down_proj.weight", {64, 96}, magnitude);
    add(p + "input_layernorm.weight", {64}, 1.0F);
  }
  void add_model() {
    add("model.embed_tokens.weight", {40, 64});
    add("lm_head.weight", {40, 64});
    add("model.norm.weight", {64}, 1.0F);
    add_layer(0);
    add_layer(1);
  }

  // Values that FP16 holds and, for the most part, BF16 does not: 11 significant bits.
  void move_to_halves() {
    for (auto& [name, tensor] : tensors_) {
      std::vector<uint16_t> half(tensor.x.size());
      for (float& value : tensor.x) value *= 1.0009765625F;  // 1 + 2^-10
      f32_to_fp16(tensor.x.data(), static_cast<int64_t>(half.size()), half.data());
      fp16_to_f32(half.data(), static_cast<int64_t>(half.size()), tensor.x.data());
    }
  }

  // n_shards files; tensors go to them in turn, so that groups are spread.
  fs::path write(const std::string& name, size_t n_shards = 1, DType dtype = DType::kBF16) {
    const fs::path path = dir_ / name;
    auto out = AtomicDir::create(path);
    EXPECT_TRUE(out.has_value());
    std::vector<std::vector<std::string>> names(n_shards);
    size_t next = 0;
    for (const auto& [tensor, value] : tensors_) names[next++ % n_shards].push_back(tensor);
    std::string weight_map;
    for (size_t s = 0; s < n_shards; ++s) {
      const std::string file =
          n_shards == 1 ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, n_shards);
      std::vector<TensorSpec> specs;
      for (const auto& tensor : names[s]) {
        specs.push_back({tensor, dtype, tensors_[tensor].shape});
        weight_map += fmt::format("{}\"{}\": \"{}\"", weight_map.empty() ? "" : ", ", tensor, file);
      }
      auto writer =
          SafetensorsWriter::create(*out, file, SafetensorsLayout::make(specs, {}).value());
      EXPECT_TRUE(writer.has_value());
      for (size_t i = 0; i < specs.size(); ++i) {
        const std::vector<float>& x = tensors_[specs[i].name].x;
        std::vector<uint16_t> half(x.size());
        if (dtype == DType::kBF16)
          f32_to_bf16(x.data(), static_cast<int64_t>(x.size()), half.data());
        else
          f32_to_fp16(x.data(), static_cast<int64_t>(x.size()), half.data());
        const auto bytes =
            dtype == DType::kF32 ? std::as_bytes(std::span(x)) : std::as_bytes(std::span(half));
        EXPECT_TRUE(writer->write(static_cast<int64_t>(i), bytes).has_value());
      }
      EXPECT_TRUE(writer->finish().has_value());
    }
    if (n_shards > 1) {
      EXPECT_TRUE(out->write_file("model.safetensors.index.json",
                                  "{\"metadata\": {}, \"weight_map\": {" + weight_map + "}}")
                      .has_value());
    }
    EXPECT_TRUE(out->write_file("config.json", config_).has_value());
    EXPECT_TRUE(out->write_file("tokenizer.json", "{\"kept\": true}").has_value());
    EXPECT_TRUE(out->write_file("notes.bin", "weights of another format").has_value());
    EXPECT_TRUE(out->commit().has_value());
    return path;
  }

  Result<QuantizeReport> run(const fs::path& source, const fs::path& destination,
                             const QuantizeOptions& options = {}, int n_threads = 2) {
    SX_ASSIGN(const auto checkpoint, Checkpoint::open(source));
    ThreadPool pool(n_threads);
    return quantize(*checkpoint, destination, options, pool);
  }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static float global_of(const Checkpoint& c, const std::string& module) {
    return c.linear(module)->ranges.at(0).stored;
  }

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> x;
  };
  fs::path dir_;
  std::map<std::string, Tensor> tensors_;
  std::string config_ =
      "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
      "\"hidden_size\": 64}";
};

std::string bytes_of(const TensorRef& tensor) {
  const auto bytes = tensor.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
float amax(const std::vector<float>& x) {
  return amax_of(x.data(), static_cast<int64_t>(x.size()));
}

TEST_F(QuantizeTest, OwnScalesAreProfileDOfEachWeight) {
  add_model();
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    if (dtype == DType::kF16) move_to_halves();
    const fs::path source = write(fmt::format("src{}", dtype_name(dtype)), 1, dtype);
    const fs::path destination = dir_ / fmt::format("dst{}", dtype_name(dtype));
    QuantizeOptions options;
    options.global_scale = GlobalScaleRule::kOwn;
    const auto report = run(source, destination, options);
    ASSERT_TRUE(report.has_value()) << report.error().text;
    EXPECT_EQ(report->n_quantized, 14);
    const auto out = Checkpoint::open(destination).value();
    EXPECT_TRUE(refuse_errors(out->findings(), true).has_value());
    EXPECT_EQ(out->dialect(), "modelopt");
    for (const auto& [name, tensor] : tensors_) {
      const std::string module = name.substr(0, name.rfind('.'));
      if (tensor.shape.size() == 1 || module == "lm_head" || module == "model.embed_tokens") {
        EXPECT_EQ(bytes_of(out->tensor(name)),
                  bytes_of(Checkpoint::open(source).value()->tensor(name)));
        continue;
      }
      const int64_t n = tensor.shape[0];
      const int64_t k = tensor.shape[1];
      const float g = amax(tensor.x) / 2688.0F;
      std::string codes(static_cast<size_t>(n * k / 2), '\0');
      std::string scales(static_cast<size_t>(n * k / 16), '\0');
      nvfp4_quantize(Nvfp4Profile::kD, {tensor.x.data(), n, k}, g,
                     {reinterpret_cast<uint8_t*>(codes.data()), n, k / 2},
                     {reinterpret_cast<uint8_t*>(scales.data()), n, k / 16});
      const TensorRef stored = out->tensor(module + ".weight");
      EXPECT_EQ(stored.info->dtype, DType::kU8);
      EXPECT_EQ(stored.info->shape, (std::vector<int64_t>{n, k / 2}));
      EXPECT_EQ(bytes_of(stored), codes) << module;
      EXPECT_EQ(bytes_of(out->tensor(module + ".weight_scale")), scales) << module;
      EXPECT_TRUE(out->tensor(module + ".weight_scale_2").info->shape.empty());
      EXPECT_EQ(global_of(*out, module), g);
    }
  }
}

TEST_F(QuantizeTest, FusedLinearsShareTheLargestAmax) {
  add_model();
  const fs::path source = write("src", 3);  // groups lie in several files
  ASSERT_TRUE(run(source, dir_ / "dst").has_value());
  const auto out = Checkpoint::open(dir_ / "dst").value();
  EXPECT_EQ(out->files().size(), 3U);
  EXPECT_TRUE(refuse_errors(out->findings(), true).has_value());
  const auto g = [&](const std::string& leaf) { return global_of(*out, "model.layers.1." + leaf); };
  const auto own = [&](const std::string& leaf) {
    return amax(tensors_["model.layers.1." + leaf + ".weight"].x) / 2688.0F;
  };
  const float qkv =
      std::max({own("self_attn.q_proj"), own("self_attn.k_proj"), own("self_attn.v_proj")});
  for (const char* leaf : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
    EXPECT_EQ(g(leaf), qkv);
  EXPECT_EQ(g("mlp.gate_proj"), std::max(own("mlp.gate_proj"), own("mlp.up_proj")));
  EXPECT_EQ(g("mlp.gate_proj"), g("mlp.up_proj"));
  EXPECT_EQ(g("mlp.down_proj"), own("mlp.down_proj"));
  EXPECT_NE(global_of(*out, "model.layers.0.mlp.gate_proj"), g("mlp.gate_proj"));
}

TEST_F(QuantizeTest, CompressedTensorsHasTheSameCodesAndItsZeroRule) {
  add_model();
  auto& q = tensors_["model.layers.0.self_attn.q_proj.weight"].x;
  std::fill_n(q.begin(), 16, 0.0F);       // a block of zeros
  std::fill_n(q.begin() + 16, 16, 0.0F);  // and one whose scale underflows
  q[17] = round_to_bf16(amax(q) * 0x1p-21F);
  const fs::path source = write("src");
  QuantizeOptions options;
  options.global_scale = GlobalScaleRule::kOwn;
  ASSERT_TRUE(run(source, dir_ / "mo", options).has_value());
  options.dialect = QuantizeDialect::kCompressedTensors;
  ASSERT_TRUE(run(source, dir_ / "ct", options).has_value());
  const auto mo = Checkpoint::open(dir_ / "mo").value();
  const auto ct = Checkpoint::open(dir_ / "ct").value();
  EXPECT_EQ(ct->dialect(), "compressed-tensors");
  EXPECT_TRUE(refuse_errors(ct->findings(), true).has_value());
  EXPECT_FALSE(fs::exists(dir_ / "ct" / "hf_quant_config.json"));
  for (const auto& [module, record] : mo->linears()) {
    if (record.scheme != Scheme::kNvfp4) continue;
    const LinearRecord* other = ct->linear(module);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->weight.info->name, module + ".weight_packed");
    std::string scales = bytes_of(record.scales);
    std::string codes = bytes_of(record.weight);
    if (module == "model.layers.0.self_attn.q_proj") {
      EXPECT_EQ(scales.substr(0, 2), (std::string{'\x38', '\0'}));
      EXPECT_EQ(codes[8] & 0xF0, 0x70);  // ModelOpt: 6 times a scale of zero
      scales[0] = scales[1] = 0x20;
      std::fill_n(codes.begin() + 8, 8, '\0');
    }
    EXPECT_EQ(bytes_of(other->scales), scales) << module;
    EXPECT_EQ(bytes_of(other->weight), codes) << module;
    EXPECT_TRUE(other->ranges.at(0).is_divisor);
    EXPECT_EQ(other->ranges.at(0).stored, 2688.0F / amax(tensors_[module + ".weight"].x));
    EXPECT_EQ(ct->tensor(module + ".weight_global_scale").info->shape, std::vector<int64_t>{1});
  }
}

TEST_F(QuantizeTest, ThreadsAndMemoryChangeNothing) {
  add_model();
  add("model.layers.0.mlp.down_proj.weight", {512, 512});
  const fs::path source = write("src");
  QuantizeOptions tight;
  tight.max_memory_bytes = 1;
  ASSERT_TRUE(run(source, dir_ / "a", {}, 1).has_value());
  ASSERT_TRUE(run(source, dir_ / "b", tight, 3).has_value());
  const std::string a = read(dir_ / "a" / "model.safetensors");
  EXPECT_FALSE(a.empty());
  EXPECT_TRUE(a == read(dir_ / "b" / "model.safetensors"));
}

TEST_F(QuantizeTest, WhatStaysAndWhatIsTakenAlong) {
  add_model();
  add("model.layers.0.mlp.gate.weight", {8, 64});       // a router
  add("model.layers.1.mlp.odd_proj.weight", {16, 40});  // 40 is no multiple of 16
  const fs::path source = write("src");
  QuantizeOptions options;
  options.keep = {"*.layers.1.self_attn.q_proj"};
  std::vector<int64_t> seen;
  options.progress = [&](const QuantizeProgress& p) {
    seen.push_back(p.done_bytes);
    EXPECT_LE(p.done_bytes, p.total_bytes);
  };
  const auto report = run(source, dir_ / "dst", options);
  ASSERT_TRUE(report.has_value()) << report.error().text;
  EXPECT_EQ(report->n_quantized, 13);
  EXPECT_EQ(seen.back(), report->source_bytes);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  std::map<std::string, std::string> kept;
  for (const KeptModule& k : report->kept) kept[k.module] = k.reason;
  EXPECT_EQ(kept["lm_head"], "head");
  EXPECT_EQ(kept["model.embed_tokens"], "embedding");
  EXPECT_EQ(kept["model.layers.0.mlp.gate"], "router");
  EXPECT_THAT(kept["model.layers.1.mlp.odd_proj"], HasSubstr("multiple of 16"));
  EXPECT_THAT(kept["model.layers.1.self_attn.q_proj"], HasSubstr("kept by"));
  EXPECT_EQ(report->notes.size(), 2U);  // the odd rows, and q kept while k and v are not
  const auto config = read_json(dir_ / "dst" / "config.json").value();
  const JsonValue* quantization = config.find("quantization_config");
  ASSERT_NE(quantization, nullptr);
  EXPECT_EQ(quantization->find("quant_algo")->as_string(), "W4A16_NVFP4");
  std::vector<std::string> ignore;
  for (const JsonValue& name : quantization->find("ignore")->array())
    ignore.push_back(name.as_string());
  EXPECT_THAT(ignore, testing::ElementsAre("lm_head", "model.layers.0.mlp.gate",
                                           "model.layers.1.mlp.odd_proj",
                                           "model.layers.1.self_attn.q_proj"));
  EXPECT_EQ(config.find("model_type")->as_string(), "llama");
  EXPECT_EQ(read(dir_ / "dst" / "tokenizer.json"), "{\"kept\": true}");
  EXPECT_FALSE(fs::exists(dir_ / "dst" / "notes.bin"));
  EXPECT_TRUE(fs::exists(dir_ / "dst" / "hf_quant_config.json"));
  EXPECT_TRUE(Checkpoint::open(dir_ / "dst").value()->findings().empty());
}

TEST_F(QuantizeTest, TensorsOfZerosAndTinyOnesStayFinite) {
  add_model();
  for (float& v : tensors_["model.layers.0.mlp.down_proj.weight"].x) v = 0.0F;
  for (float& v : tensors_["model.layers.0.self_attn.o_proj.weight"].x) v *= 1e-37F;
  const fs::path source = write("src");
  for (const auto dialect : {QuantizeDialect::kModelOpt, QuantizeDialect::kCompressedTensors}) {
    QuantizeOptions options;
    options.dialect = dialect;
    options.force = true;
    const auto report = run(source, dir_ / "dst", options);
    ASSERT_TRUE(report.has_value()) << report.error().text;
    EXPECT_EQ(report->n_zero_tensors, 1);
    const auto out = Checkpoint::open(dir_ / "dst").value();
    EXPECT_EQ(global_of(*out, "model.layers.0.mlp.down_proj"), 1.0F);
    for (const auto& [module, record] : out->linears()) {
      if (record.scheme != Scheme::kNvfp4) continue;
      EXPECT_TRUE(std::isnormal(record.ranges.at(0).g));
      for (const char byte : bytes_of(record.scales)) EXPECT_NE(byte & 0x7F, 0x7F) << module;
    }
  }
}

TEST_F(QuantizeTest, WeightsThatAreNotFiniteAreNamed) {
  add_model();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    tensors_["model.layers.1.mlp.up_proj.weight"].x[64 * 7 + 5] = bad;
    const fs::path source = write(std::isnan(bad) ? "nan" : "inf");
    const auto report = run(source, dir_ / "dst");
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code, Code::kModel);
    EXPECT_THAT(report.error().text, HasSubstr("[7, 5] of 'model.layers.1.mlp.up_proj.weight'"));
    EXPECT_EQ(report.error().where.tensor, "model.layers.1.mlp.up_proj.weight");
    EXPECT_FALSE(fs::exists(dir_ / "dst"));
  }
}

TEST_F(QuantizeTest, Refusals) {
  add_model();
  const fs::path source = write("src");
  const auto code = [&](const fs::path& from, const fs::path& to, const QuantizeOptions& options) {
    const auto report = run(from, to, options);
    return report ? std::string("done") : std::string(code_name(report.error().code));
  };
  EXPECT_EQ(code(source, source, {}), "usage");
  fs::create_directories(dir_ / "there");
  EXPECT_EQ(code(source, dir_ / "there", {}), "usage");
  QuantizeOptions force;
  force.force = true;
  EXPECT_EQ(code(source, source, force), "usage");
  QuantizeOptions typo;
  typo.keep = {"*.layer.0.*"};
  EXPECT_EQ(code(source, dir_ / "dst", typo), "usage");
  QuantizeOptions all;
  all.keep = {"*"};
  EXPECT_EQ(code(source, dir_ / "dst", all), "unsupported");
  std::atomic<bool> cancelled{true};
  QuantizeOptions cancel;
  cancel.cancel = &cancelled;
  EXPECT_EQ(code(source, dir_ / "dst", cancel), "cancelled");
  EXPECT_FALSE(fs::exists(dir_ / "dst"));
  ASSERT_EQ(code(source, dir_ / "dst", {}), "done");
  EXPECT_EQ(code(dir_ / "dst", dir_ / "again", {}), "unsupported");
  EXPECT_EQ(code(source, dir_ / "dst", force), "done");
}

TEST(QuantizePlan, GroupsAndDefaults) {
  EXPECT_EQ(fused_group("model.layers.3.self_attn.k_proj"), "model.layers.3.self_attn|qkv");
  EXPECT_EQ(fused_group("a.experts.7.w3"), fused_group("a.experts.7.w1"));
  EXPECT_NE(fused_group("a.experts.7.w3"), fused_group("a.experts.8.w3"));
  EXPECT_EQ(fused_group("a.experts.7.w2"), "a.experts.7.w2");
  EXPECT_EQ(fused_group("l.self_attn.q_a_proj"), fused_group("l.self_attn.kv_a_proj_with_mqa"));
  EXPECT_EQ(kept_by_default("model.embed_tokens"), "embedding");
  EXPECT_EQ(kept_by_default("transformer.wte"), "embedding");
  EXPECT_EQ(kept_by_default("model.layers.0.block_sparse_moe.gate"), "router");
  EXPECT_EQ(kept_by_default("model.layers.0.mlp.shared_expert_gate"), "router");
  EXPECT_EQ(kept_by_default("model.layers.0.mlp.gate_proj"), "");
  EXPECT_EQ(kept_by_default("lm_head"), "head");
}

}  // namespace
}  // namespace sextant
