#include "cli/model_path.h"

#include <algorithm>
#include <cstdlib>

#include "checkpoint/source.h"
#include "cli/format.h"

namespace sextant {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxListed = 1000;

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.empty() && name.front() != '.') names.push_back(name);
    if (names.size() >= kMaxListed) break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

fs::path models_home() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string home = variable("SEXTANT_HOME"); !home.empty())
    return fs::path(home) / "models";
  if (const std::string data = variable("XDG_DATA_HOME"); !data.empty())
    return fs::path(data) / "sextant/models";
  return fs::path(variable("HOME")) / ".local/share/sextant/models";
}

std::vector<std::string> installed_models() { return names_in(models_home()); }

Result<fs::path> find_model(const std::string& typed) {
  if (typed.empty()) return fail(Code::kUsage, "expected a model, found an empty name");
  std::error_code error;
  if (fs::exists(typed, error)) return model_directory(typed);
  const fs::path home = models_home();
  if (typed.find("..") == std::string::npos && typed.front() != '/' &&
      fs::exists(home / typed, error))
    return model_directory(home / typed);

  std::vector<std::string> close = close_matches(typed, installed_models());
  const fs::path parent = fs::path(typed).parent_path();
  for (const std::string& name :
       close_matches(fs::path(typed).filename().string(), names_in(parent.empty() ? "." : parent)))
    close.push_back((parent / name).string());
  const std::string hint =
      close.empty() ? "give a model directory, a .safetensors file, or a name that is there"
                    : "did you mean " + join(close, " or ") + "?";
  return fail_at(at_file(typed), Code::kInput,
                 "no model \"{}\": there is no such path, and no such name in {}; {}", typed,
                 home.string(), hint);
}

}  // namespace sextant
