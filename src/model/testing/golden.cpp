// Implements testing/golden.h.
#include "model/testing/golden.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "base/check.h"
#include "base/checked.h"
#include "io/safetensors.h"
#include "quant/bf16.h"

namespace sextant::testing {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  SX_CHECK(in.good(), "cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  SX_CHECK(out.good(), "cannot write {}", path.string());
}

SafetensorsFile open_dump(const std::string& directory) {
  auto file = SafetensorsFile::open(golden_dir(directory) / "dump.safetensors");
  SX_CHECK(file.has_value(), "{}", file.error().text);
  return std::move(*file);
}

std::vector<std::vector<int32_t>> read_ids(const std::string& directory,
                                           const std::string& tensor) {
  const SafetensorsFile file = open_dump(directory);
  const TensorInfo* info = file.find(tensor);
  SX_CHECK(info != nullptr && info->dtype == DType::kI64 && info->shape.size() == 2, "{} of {}",
           tensor, directory);
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(info->shape[0]));
  int64_t i = 0;
  for (auto& row : out)
    for (int64_t t = 0; t < info->shape[1]; ++t, ++i) {
      int64_t id = 0;
      std::memcpy(&id, file.bytes(*info).data() + i * 8, 8);
      row.push_back(narrow<int32_t>(id));
    }
  return out;
}

}  // namespace

std::filesystem::path golden_dir(const std::string& name) {
  const char* root = std::getenv("SEXTANT_GOLDEN");
  return std::filesystem::path(root != nullptr && *root != '\0' ? root
                                                                : SX_SOURCE_DIR "/tests/golden") /
         name;
}

const std::vector<std::string>& dense_directories() {
  static const std::vector<std::string> names = {"llama2",
                                                 "llama3",
                                                 "llama-smollm",
                                                 "llama-odd",
                                                 "llama-rope-linear",
                                                 "llama-rope-dynamic",
                                                 "llama-rope-yarn",
                                                 "mistral",
                                                 "qwen2",
                                                 "qwen2-window",
                                                 "qwen3",
                                                 "modelopt-llama3-separate",
                                                 "modelopt-llama3-shared",
                                                 "modelopt-llama-mixed",
                                                 "modelopt-qwen2-mlp",
                                                 "ct-llama3-nvfp4",
                                                 "ct-llama3-nvfp4a16",
                                                 "fp8-block-llama"};
  return names;
}

const std::vector<std::string>& moe_directories() {
  static const std::vector<std::string> names = {"qwen3-moe", "qwen3-moe-mixed",
                                                 "modelopt-qwen3-moe"};
  return names;
}

std::vector<std::string> model_directories() {
  std::vector<std::string> names = dense_directories();
  names.insert(names.end(), moe_directories().begin(), moe_directories().end());
  return names;
}

std::vector<std::vector<int32_t>> dump_ids(const std::string& directory) {
  return read_ids(directory, "input_ids");
}

std::vector<int32_t> dump_router_ids(const std::string& directory, int64_t layer) {
  std::vector<int32_t> all;
  for (const auto& row : read_ids(directory, fmt::format("router.{}.ids", layer)))
    all.insert(all.end(), row.begin(), row.end());
  return all;
}

std::vector<float> dump_floats(const std::string& directory, const std::string& tensor) {
  const SafetensorsFile file = open_dump(directory);
  const TensorInfo* info = file.find(tensor);
  SX_CHECK(info != nullptr && info->dtype == DType::kF32, "{} of {}", tensor, directory);
  std::vector<float> out(static_cast<size_t>(info->n_elements()));
  std::memcpy(out.data(), file.bytes(*info).data(), out.size() * sizeof(float));
  return out;
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "sextant-test-XXXXXX").string();
  SX_CHECK(::mkdtemp(name.data()) != nullptr, "no temporary directory {}", name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

EditedCheckpoint::EditedCheckpoint(const std::string& directory)
    : config(Json::parse(slurp(golden_dir(directory) / "config.json"))) {
  for (const auto& entry : std::filesystem::directory_iterator(golden_dir(directory))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    auto file = SafetensorsFile::open(entry.path());
    SX_CHECK(file.has_value(), "{}", file.error().text);
    for (const TensorInfo& info : file->tensors()) {
      const auto bytes = file->bytes(info);
      tensors[info.name] = {info.dtype, info.shape,
                            std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    }
  }
}

void EditedCheckpoint::write(const std::filesystem::path& to) const {
  std::filesystem::create_directories(to);
  spill(to / "config.json", config.dump(1));
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", dtype_name(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  const uint64_t n = text.size();
  std::memcpy(length.data(), &n, sizeof(n));
  spill(to / "model.safetensors", length + text + data);
}

TestTensor bf16_tensor(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  TestTensor out{DType::kBF16, shape, {}};
  for (const float v : values) {
    const uint16_t bits = f32_to_bf16(v);
    out.bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return out;
}

std::vector<float> run_logits(const Model& model, const std::vector<int32_t>& ids,
                              const std::vector<int64_t>& steps, ThreadPool& pool, Probe* probe) {
  const int64_t n_vocab = model.config().n_vocab;
  const auto n = static_cast<int64_t>(ids.size());
  const KvLayout layout = model.kv_layout();
  KvPool pages(layout, ceil_div(n, layout.page_tokens));
  KvSequence kv(pages);
  SX_CHECK(kv.reserve(n), "no pages");
  const StepBuffersPtr buffers = model.make_buffers(n, n);
  std::vector<float> logits(static_cast<size_t>(n * n_vocab));
  int64_t pos = 0;
  for (const int64_t step : steps) {
    const StepSeq seq{&kv, {ids.data() + pos, static_cast<size_t>(step)}, pos, step};
    model.forward({&seq, 1}, *buffers, Mat<float>(logits.data() + pos * n_vocab, step, n_vocab),
                  probe, pool);
    pos += step;
  }
  SX_CHECK(pos == n, "steps cover {} of {}", pos, n);
  return logits;
}

std::vector<int64_t> chunks_of(int64_t n, int64_t chunk) {
  std::vector<int64_t> steps;
  for (int64_t at = 0; at < n; at += chunk) steps.push_back(std::min(chunk, n - at));
  return steps;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double aa = 0;
  double bb = 0;
  double ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += double{a[i]} * double{a[i]};
    bb += double{b[i]} * double{b[i]};
    ab += double{a[i]} * double{b[i]};
  }
  return ab / std::sqrt(aa * bb);
}

double mean_kl(const std::vector<float>& reference, const std::vector<float>& x, int64_t n_vocab) {
  const auto width = static_cast<size_t>(n_vocab);
  double total = 0;
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double norm_p = 0;
    double norm_q = 0;
    for (size_t i = begin; i < begin + width; ++i) {
      norm_p += std::exp(double{reference[i]});
      norm_q += std::exp(double{x[i]});
    }
    for (size_t i = begin; i < begin + width; ++i) {
      const double p = double{reference[i]} - std::log(norm_p);
      const double q = double{x[i]} - std::log(norm_q);
      total += std::exp(p) * (p - q);
    }
  }
  return total / (static_cast<double>(x.size()) / static_cast<double>(width));
}

}  // namespace sextant::testing
