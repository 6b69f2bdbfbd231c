// What tells one checkpoint from another without reading all of it: SHA-256 of a file's size, its
// first MiB (headers of all but huge files) and 256 evenly spread pages. A change of a few bytes
// elsewhere is not seen; whoever must see it hashes every byte (sha256_file).
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "checkpoint/directory.h"

namespace sextant {

Result<std::string> file_fingerprint(const std::filesystem::path& path);

// Of config.json and every shard together, whatever their names and the order of the shards.
Result<std::string> model_hash(const Checkpoint& checkpoint);

}  // namespace sextant
