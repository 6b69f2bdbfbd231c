// Writing one safetensors file whose names, types and shapes are known before any data is. The
// header goes first; tensors then stream in, in pieces, in any order and from any thread. finish()
// checks that every byte came.
//
// In the file tensors stand in the order given, but wider types before narrower ones, as the
// reference implementation does: every tensor is then aligned to its element.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/atomic_dir.h"
#include "quant/dtype.h"

namespace sextant {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;  // F4 counts elements
};

class SafetensorsLayout {
 public:
  // kInput for a name that occurs twice, is reserved or no UTF-8, a size that overflows or is no
  // whole number of bytes, a header above the 100 MB that readers accept (use more shards).
  static Result<SafetensorsLayout> make(std::vector<TensorSpec> tensors,
                                        const std::map<std::string, std::string>& metadata = {});

  const std::vector<TensorSpec>& tensors() const { return tensors_; }  // as given
  int64_t begin(int64_t tensor_idx) const { return begin_[static_cast<size_t>(tensor_idx)]; }
  int64_t n_bytes(int64_t tensor_idx) const { return n_bytes_[static_cast<size_t>(tensor_idx)]; }
  int64_t file_bytes() const { return file_bytes_; }
  const std::string& header() const { return header_; }  // length field, JSON, padding

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<int64_t> begin_;  // absolute byte offsets in the file
  std::vector<int64_t> n_bytes_;
  std::string header_;
  int64_t file_bytes_ = 0;
};

class SafetensorsWriter {
 public:
  // Creates the file inside dir and writes the header.
  static Result<SafetensorsWriter> create(AtomicDir& dir, std::string_view file_name,
                                          SafetensorsLayout layout);

  const SafetensorsLayout& layout() const { return layout_; }
  // Bytes [offset, offset + bytes.size()) of a tensor (index as in the layout), each once. Any
  // thread.
  Status write(int64_t tensor_idx, int64_t offset, std::span<const std::byte> bytes);
  // A whole tensor.
  Status write(int64_t tensor_idx, std::span<const std::byte> bytes);
  // Syncs and closes; a tensor that lacks bytes or got too many is a defect of the caller.
  Status finish();

 private:
  SafetensorsWriter(OutputFile file, SafetensorsLayout layout);
  OutputFile file_;
  SafetensorsLayout layout_;
  std::unique_ptr<std::atomic<int64_t>[]> n_written_;  // bytes of each tensor
};

}  // namespace sextant
