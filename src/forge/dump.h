// A dump on disk, opened and checked: tensors of one forward pass of some framework, their bounds
// and the policy they were made under. Owns the format; comparing is compare.h's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/safetensors.h"

namespace sextant {

class Dump {
 public:
  static Result<Dump> open(const std::filesystem::path& directory, std::string_view name);

  const std::string& policy() const { return policy_; }
  // The --policy values that this dump's policy stands for: a name of docs/dumps.md, or such values
  // themselves, between spaces; kUnsupported for those of later versions.
  Result<std::vector<std::string>> model_policies() const;
  // bounds[name], or that of the kind, by default the name up to its first dot; an error where
  // there is neither.
  Result<double> bound(std::string_view tensor, std::string_view kind = {}) const;

  const SafetensorsFile& file() const { return file_; }
  const TensorInfo* find(std::string_view tensor) const { return file_.find(tensor); }
  // A float32 tensor of this shape; nullptr where there is none, an error where it is another.
  Result<const TensorInfo*> floats(std::string_view tensor,
                                   const std::vector<int64_t>& shape) const;
  float value(const TensorInfo& tensor, int64_t i) const;

  // int64 [rows, cols] with every id in [0, n_ids).
  struct Ids {
    int64_t rows = 0;
    int64_t cols = 0;
    std::vector<int32_t> ids;
    std::span<const int32_t> row(int64_t i) const {
      return {ids.data() + i * cols, static_cast<size_t>(cols)};
    }
  };
  Result<Ids> ids(std::string_view tensor, int64_t n_ids) const;

 private:
  Dump(SafetensorsFile file, std::string json_name)
      : file_(std::move(file)), json_name_(std::move(json_name)) {}
  SafetensorsFile file_;
  std::string json_name_;
  std::string policy_;
  std::map<std::string, double, std::less<>> bounds_;
};

}  // namespace sextant
