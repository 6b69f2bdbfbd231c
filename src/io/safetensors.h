// One safetensors file: header parsed with checked arithmetic (serving.md 5.2 and 5.5 A), data
// mapped. A file that opens is sound: every tensor's bytes lie inside it, sizes agree with shape
// and dtype, no holes, overlaps or duplicate names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "quant/dtype.h"

namespace sextant {

struct SafetensorsLimits {
  int64_t max_header_bytes = 100'000'000;  // as the reference implementation
  int64_t max_tensors = 2'000'000;
  int64_t max_name_bytes = 4096;
  int64_t max_rank = 8;
  int64_t max_metadata_bytes = 16 << 20;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // absolute byte offsets in the file
  int64_t end = 0;

  int64_t n_elements() const;
  int64_t n_bytes() const { return end - begin; }
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path,
                                      const SafetensorsLimits& limits = {});

  const std::vector<TensorInfo>& tensors() const {
    return tensors_;
  }                                                     // in the order of their offsets
  const TensorInfo* find(std::string_view name) const;  // nullptr where there is none
  std::span<const std::byte> bytes(const TensorInfo& tensor) const {
    return file_.bytes().subspan(static_cast<size_t>(tensor.begin),
                                 static_cast<size_t>(tensor.n_bytes()));
  }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const MappedFile& file() const { return file_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys point into tensors_
  std::map<std::string, std::string> metadata_;
};

}  // namespace sextant
