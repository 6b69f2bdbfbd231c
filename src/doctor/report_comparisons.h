// Two sections of the HTML report: what an engine would do with the checkpoint, and how its weights
// compare with a reference. Every text from outside goes through html_escape.
#pragma once

#include <string>

#include "doctor/report.h"

namespace sextant {

inline constexpr size_t kMaxComparedRows =
    100;  // of a table or a list; the page says how many more

// Empty where no engine was asked about.
std::string engine_section(const ReportComparisons& beside);
std::string against_section(const AgainstReport& report);

}  // namespace sextant
