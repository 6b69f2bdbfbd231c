#include "io/sha256.h"

#include <algorithm>
#include <array>
#include <vector>

#include <openssl/evp.h>

#include "base/check.h"
#include "io/mapped_file.h"

namespace sextant {
namespace {
constexpr int64_t kPieceBytes = int64_t{1} << 20;
EVP_MD_CTX* as_context(void* p) { return static_cast<EVP_MD_CTX*>(p); }
}  // namespace

void Sha256::Free::operator()(void* context) const noexcept {
  EVP_MD_CTX_free(as_context(context));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  SX_CHECK(context_ != nullptr &&
               EVP_DigestInit_ex(as_context(context_.get()), EVP_sha256(), nullptr) == 1,
           "OpenSSL has no SHA-256");
}
Sha256::Sha256(Sha256&& other) noexcept = default;
Sha256& Sha256::operator=(Sha256&& other) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  SX_CHECK(EVP_DigestUpdate(as_context(context_.get()), bytes.data(), bytes.size()) == 1,
           "SHA-256");
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  unsigned n = 0;
  SX_CHECK(EVP_DigestFinal_ex(as_context(context_.get()), digest.data(), &n) == 1 && n == 32,
           "SHA-256");
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
  SX_ASSIGN(const InputFile file, InputFile::open(path));
  Sha256 hash;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(file.size(), kPieceBytes)));
  for (int64_t at = 0; at < file.size(); at += kPieceBytes) {
    const std::span piece(buffer.data(),
                          static_cast<size_t>(std::min(kPieceBytes, file.size() - at)));
    SX_TRY(file.read_at(at, piece));
    hash.update(piece);
  }
  return hash.finish();
}

}  // namespace sextant
