// Which files make up a checkpoint: the directory behind a path (a model directory, a hub cache
// snapshot or its models--org--name folder, one .safetensors file), its configs, and the shards
// that the index or the usual names say belong to it. Opens no shard. A name from an index is
// checked before it is used as a path, and nothing outside the directory (or, in a hub cache, the
// repository's blobs) is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/finding.h"

namespace sextant {

struct CheckpointFiles {
  std::filesystem::path root;
  bool bare_file = false;  // one .safetensors file, no configs
  std::vector<std::filesystem::path> shards;
  std::optional<std::filesystem::path> config;
  std::optional<std::filesystem::path> generation_config;
  std::optional<std::filesystem::path> sidecar;  // hf_quant_config.json
  std::string index_name;                        // file name of the index; empty without one
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, shard file name
  std::optional<int64_t> total_size;                            // as the index claims
};

// The snapshot inside where the path is a hub cache's models--org--name folder, else the path.
Result<std::filesystem::path> model_directory(const std::filesystem::path& path);

Result<CheckpointFiles> locate_checkpoint(const std::filesystem::path& path, FindingSet& findings);

}  // namespace sextant
