// Copying what is not weights.
#include "forge/quantize_files.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "io/quote.h"

namespace sextant {
namespace {

constexpr std::array<std::string_view, 13> kNotTaken = {
    ".safetensors", ".bin", ".pt",  ".pth",  ".ckpt",      ".gguf",      ".h5",
    ".msgpack",     ".ot",  ".npz", ".onnx", ".onnx_data", ".index.json"};

bool is_taken(std::string_view name) {
  if (name.starts_with(".") || name == "config.json" || name == "hf_quant_config.json")
    return false;
  return std::none_of(kNotTaken.begin(), kNotTaken.end(),
                      [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

Status copy_other_files(const std::filesystem::path& source, AtomicDir& out,
                        std::vector<std::string>& notes) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  std::string directories;
  for (std::filesystem::directory_iterator it(source, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      if (!name.starts_with("."))
        directories += (directories.empty() ? "" : ", ") + quote_name(name);
    } else if (it->is_regular_file(ignored) && is_taken(name)) {
      files.push_back(it->path());
    }
  }
  if (error)
    return fail_at(Where{source.string(), {}, {}, {}}, Code::kInput, "cannot list {}: {}",
                   source.string(), error.message());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) SX_TRY(out.copy_file(file, file.filename().string()));
  if (!directories.empty())
    notes.push_back("directories of the source are not taken along: " + directories);
  return {};
}

}  // namespace sextant
