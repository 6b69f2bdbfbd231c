// libFuzzer target: any bytes as a safetensors file. What opens must be sound; what does not must
// give the same error again.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "io/safetensors.h"

namespace sextant {
namespace {

// One file for this process, in memory where the system has such a place.
const std::filesystem::path& scratch_file() {
  static const std::filesystem::path path = [] {
    const std::filesystem::path shm = "/dev/shm";
    const auto dir =
        ::access(shm.c_str(), W_OK) == 0 ? shm : std::filesystem::temp_directory_path();
    return dir / fmt::format("sextant-fuzz-{}.safetensors", ::getpid());
  }();
  return path;
}

void check_sound(const SafetensorsFile& file, int64_t file_bytes) {
  int64_t at = file.data_begin();
  for (const TensorInfo& tensor : file.tensors()) {
    SX_CHECK(tensor.begin == at && tensor.end >= tensor.begin && tensor.end <= file_bytes,
             "tensor {} at [{}, {})", tensor.name, tensor.begin, tensor.end);
    SX_CHECK(tensor.n_elements() * dtype_bits(tensor.dtype) == tensor.n_bytes() * 8, "size of {}",
             tensor.name);
    SX_CHECK(file.find(tensor.name) == &tensor, "look-up of {}", tensor.name);
    int sum = 0;
    for (const std::byte byte : file.bytes(tensor)) sum += static_cast<int>(byte);
    SX_CHECK(sum >= 0, "sum {}", sum);
    at = tensor.end;
  }
  SX_CHECK(at == file_bytes, "last tensor ends at {} of {}", at, file_bytes);
}

}  // namespace
}  // namespace sextant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sextant;
  const std::filesystem::path& path = scratch_file();
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const SafetensorsLimits limits{.max_header_bytes = 1 << 20, .max_tensors = 1000};
  const auto file = SafetensorsFile::open(path, limits);
  SafetensorsLimits in_pieces = limits;
  in_pieces.parsed_at_once_bytes = 1;
  const auto again = SafetensorsFile::open(path, in_pieces);
  SX_CHECK(file.has_value() == again.has_value(), "a header in pieces is another header");
  if (file) {
    check_sound(*file, static_cast<int64_t>(size));
    check_sound(*again, static_cast<int64_t>(size));
    SX_CHECK(std::ranges::equal(file->tensors(), again->tensors(),
                                [](const TensorInfo& a, const TensorInfo& b) {
                                  return a.name == b.name && a.dtype == b.dtype &&
                                         a.shape == b.shape;
                                }) &&
                 file->metadata() == again->metadata(),
             "a header in pieces has other tensors");
  } else {
    SX_CHECK(file.error().code == Code::kInput && !file.error().text.empty(), "error without text");
    const bool control = std::any_of(file.error().text.begin(), file.error().text.end(),
                                     [](char c) { return static_cast<uint8_t>(c) < 0x20; });
    SX_CHECK(!control, "control character in a message");
    SX_CHECK(again.error().text == file.error().text, "two errors for one file");
  }
  std::filesystem::remove(path);
  return 0;
}
