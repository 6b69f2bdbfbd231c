// What a file really is, told from its first bytes, for the files that people put in place of a
// safetensors or JSON file: archives, pickles, download pointers, error pages.
#pragma once

#include <optional>
#include <string_view>

namespace sextant {

// "a zip archive (...)" with what to do about it, or nullopt where nothing is recognized. head: the
// first 512 bytes or fewer.
std::optional<std::string_view> recognize_file(std::string_view head);

}  // namespace sextant
