// Where tests find golden data, and checkpoints made from it with something changed. For tests of
// model/ and the floors above it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/view.h"
#include "io/ordered_json.h"
#include "model/model.h"
#include "quant/dtype.h"

namespace sextant::testing {

std::filesystem::path golden_dir(const std::string& name);
// The directories of the dense families and of those with experts, each a checkpoint with its dump;
// and both together.
const std::vector<std::string>& dense_directories();
const std::vector<std::string>& moe_directories();
std::vector<std::string> model_directories();

// input_ids [S, T] and a float32 tensor [S, T, width] of DIR/dump.safetensors.
std::vector<std::vector<int32_t>> dump_ids(const std::string& directory);
std::vector<int32_t> dump_router_ids(const std::string& directory, int64_t layer);  // row by row
std::vector<float> dump_floats(const std::string& directory, const std::string& tensor);

// A fresh directory that goes away with the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct TestTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A golden checkpoint taken apart, to be changed and written somewhere else as one shard.
struct EditedCheckpoint {
  Json config;
  std::map<std::string, TestTensor> tensors;

  explicit EditedCheckpoint(const std::string& directory);
  void write(const std::filesystem::path& to) const;
};

TestTensor bf16_tensor(const std::vector<int64_t>& shape, const std::vector<float>& values);

// Logits [T, n_vocab] of one sequence, fed in steps of these sizes; the rows of one step at a time.
std::vector<float> run_logits(const Model& model, const std::vector<int32_t>& ids,
                              const std::vector<int64_t>& steps, ThreadPool& pool,
                              Probe* probe = nullptr);
std::vector<int64_t> chunks_of(int64_t n, int64_t chunk);

// cos of the angle between two vectors, and the mean KL(reference || x) over rows of logits.
double cosine(const std::vector<float>& a, const std::vector<float>& b);
double mean_kl(const std::vector<float>& reference, const std::vector<float>& x, int64_t n_vocab);

}  // namespace sextant::testing
