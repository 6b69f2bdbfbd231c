// The files of a model directory that are not weights or quantization configuration: what a
// checkpoint that is written anew takes along (tokenizer, generation config, chat templates).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/atomic_dir.h"

namespace sextant {

// Copies every regular file at the top of source (links are followed, as in a hub cache) but
// weights of any format, indices, config.json and hf_quant_config.json, which the caller writes,
// and hidden files. Directories are left out; one sentence in notes names them.
Status copy_other_files(const std::filesystem::path& source, AtomicDir& out,
                        std::vector<std::string>& notes);

}  // namespace sextant
