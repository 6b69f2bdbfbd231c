// A read-only file mapped into memory. Opening never blocks (FIFOs, devices and directories are
// refused) and checks the size first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sextant {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  const std::filesystem::path& path() const { return path_; }
  // The resident pages of the range are given back to the system (they can be read again). For the
  // loader after a repack.
  void release(int64_t begin, int64_t end) const;
  // Asks the system to read the range ahead.
  void will_need(int64_t begin, int64_t end) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace sextant
