// Ratios that say what went wrong (nvfp4.md section 6.2): two copies of one tensor, or of one
// activation, whose rms values are a clean factor apart.
#pragma once

#include <optional>
#include <string>

namespace sextant {

// "1.25", "1/4", ... or "g^2", "1/g^2" for a ratio that is within 2 % of it; empty for any other,
// and for 1. g: the global scale behind it, where there is one.
std::string ratio_name(double ratio, std::optional<float> g);

}  // namespace sextant
