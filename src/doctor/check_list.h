// Every check there is: what `doctor --list-checks` prints, and the title of a finding. Ids and
// slugs are stable for ever (cli.md section 4).
#pragma once

#include <span>
#include <string_view>

#include "checkpoint/finding.h"

namespace sextant {

struct CheckInfo {
  std::string_view id;
  std::string_view slug;
  Severity severity = Severity::kError;  // the usual one
  std::string_view title;                // a few words
  std::string_view threshold;            // when it speaks
  std::string_view reason;               // why it matters
};
std::span<const CheckInfo> all_checks();
// nullptr for an id and slug that no check has.
const CheckInfo* find_check(std::string_view id, std::string_view slug);

}  // namespace sextant
