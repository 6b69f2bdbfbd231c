#include "base/result.h"

namespace sextant {
namespace {
struct CodeRow {
  std::string_view name;
  int exit;
};
// In the order of enum Code.
constexpr CodeRow kRows[] = {{"gate", 1},      {"model", 2},  {"input", 3},     {"unsupported", 4},
                             {"resources", 5}, {"usage", 64}, {"internal", 70}, {"cancelled", 130}};
}  // namespace

std::string_view code_name(Code code) { return kRows[static_cast<int>(code)].name; }
int exit_status(Code code) { return kRows[static_cast<int>(code)].exit; }

}  // namespace sextant
