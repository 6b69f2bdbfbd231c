// From what the user typed to a path: a directory, snapshot or file as it is, else a name under
// $SEXTANT_HOME/models.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace sextant {

std::filesystem::path models_home();  // $SEXTANT_HOME/models, default ~/.local/share/sextant/models
std::vector<std::string> installed_models();  // names there, sorted
// kInput with close matches where there is nothing.
Result<std::filesystem::path> find_model(const std::string& typed);

}  // namespace sextant
