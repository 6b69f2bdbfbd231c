// One safetensors file: header parsed with checked arithmetic (serving.md 5.2 and 5.5 A), data
// mapped. A file that opens is sound: every tensor's bytes lie inside it, sizes agree with shape
// and dtype, no holes, overlaps, trailing bytes or duplicate names. Sizes are compared before
// anything is mapped. Whether the tensors make a model is checkpoint/'s question.
//
// The verdicts, the same in every tool: trailing bytes, overlap, hole and duplicate names are
// errors; an empty file of no tensors, zero-size and rank-0 tensors are legal; data need not be
// aligned, so read elements through unaligned-safe copies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "io/name_table.h"
#include "quant/dtype.h"

namespace sextant {

// A file begins with the length of its JSON header: this many bytes, little-endian.
inline constexpr int64_t kSafetensorsLengthBytes = 8;

// Each limit stands in the message of the error it causes. max_header_bytes is the one that real
// files reach (about 80 bytes a tensor): 1.3 million tensors take 143 MB. The reference
// implementation stops at 100 MB.
struct SafetensorsLimits {
  int64_t max_header_bytes = 256'000'000;
  int64_t max_tensors = 2'000'000;
  int64_t max_name_bytes = 4096;
  int64_t max_rank = 8;
  int64_t max_metadata_bytes = 16 << 20;
  // No limit: of larger headers this much is parsed at a time, with the same result.
  int64_t parsed_at_once_bytes = 1 << 20;
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

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;                      // in the order of their offsets
  NameTable names;                                      // of tensors
  std::map<std::string, std::string> metadata;          // the strings of __metadata__
  int64_t data_begin = 0;                               // byte offset behind the header
  const TensorInfo* find(std::string_view name) const;  // nullptr where there is none
};

// The header of a file of file_bytes bytes: json is what follows the length field. path: for
// messages. The first fault in a fixed order (syntax, entries as they stand in the header, layout
// by offset), so the same file always gives the same error.
Result<SafetensorsHeader> parse_safetensors_header(std::string json, int64_t file_bytes,
                                                   const std::filesystem::path& path,
                                                   const SafetensorsLimits& limits = {});

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path,
                                      const SafetensorsLimits& limits = {});

  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }  // by offset
  const TensorInfo* find(std::string_view name) const { return header_.find(name); }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const {
    return file_.bytes().subspan(static_cast<size_t>(tensor.begin),
                                 static_cast<size_t>(tensor.n_bytes()));
  }
  // Reads bytes [begin, begin + out.size()) of a tensor through pread instead of the mapping: a
  // storage failure is then an error that names the tensor, the byte offset and errno.
  Status read(const TensorInfo& tensor, int64_t begin, std::span<std::byte> out) const;
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  int64_t data_begin() const { return header_.data_begin; }
  const MappedFile& file() const { return file_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace sextant
