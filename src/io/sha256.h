// SHA-256 of files and tensors (OpenSSL), as 64 lower-case hexadecimal digits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sextant {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&& other) noexcept;
  Sha256& operator=(Sha256&& other) noexcept;
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  std::string finish();  // once

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  std::unique_ptr<void, Free> context_;
};

std::string sha256(std::span<const std::byte> bytes);
Result<std::string> sha256_file(const std::filesystem::path& path);

}  // namespace sextant
