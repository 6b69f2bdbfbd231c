// A small file that appears whole or not at all: written under a temporary name beside it, synced
// and renamed. A directory of files is atomic_dir.h's.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace sextant {

// Replaces what is there, but never through a link. kResources for a full disk, else kInput.
Status write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sextant
