// Implements fingerprint.h.
#include "checkpoint/fingerprint.h"

#include <algorithm>
#include <span>
#include <vector>

#include "io/mapped_file.h"
#include "io/sha256.h"

namespace sextant {
namespace {

constexpr int64_t kHeadBytes = int64_t{1} << 20;
constexpr int64_t kPage = 4096;
constexpr int64_t kPages = 256;

}  // namespace

Result<std::string> file_fingerprint(const std::filesystem::path& path) {
  SX_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&size, 1)));
  hash.update(bytes.first(static_cast<size_t>(std::min(size, kHeadBytes))));
  for (int64_t i = 0; i < kPages && size > kHeadBytes; ++i) {
    const int64_t at = kHeadBytes + (size - kHeadBytes) / kPages * i;
    const int64_t n = std::min(kPage, size - at);
    hash.update(bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
  }
  return hash.finish();
}

Result<std::string> model_hash(const Checkpoint& checkpoint) {
  std::vector<std::string> shards;
  for (const auto& shard : checkpoint.files()) {
    SX_ASSIGN(shards.emplace_back(), file_fingerprint(shard->path()));
  }
  std::sort(shards.begin(), shards.end());
  std::string all;
  if (checkpoint.config() != nullptr) {
    SX_ASSIGN(all, file_fingerprint(checkpoint.root() / "config.json"));
  }
  for (const std::string& shard : shards) all += shard;
  return sha256(std::as_bytes(std::span(all)));
}

}  // namespace sextant
