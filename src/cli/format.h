// Numbers as people read them (sizes, times, rates) and sizes as people write them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sextant {

std::string format_bytes(double n_bytes);    // "512 B", "1.50 MB", "13.2 GB" (powers of 1000)
std::string format_seconds(double seconds);  // "850 us", "12.3 ms", "4.20 s", "3 min 05 s"
std::string format_count(int64_t n);         // "1,234,567"

// "2GB", "512MiB", "4096"; nullopt for anything else, negative or above int64.
std::optional<int64_t> parse_size(std::string_view text);

// Candidates close to what was typed, nearest first, at most three.
std::vector<std::string> close_matches(std::string_view typed,
                                       const std::vector<std::string>& candidates);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Places for fail_at.
inline Where at_file(std::string file) { return {std::move(file), {}, {}, {}}; }
inline Where at_field(std::string field) { return {{}, {}, std::move(field), {}}; }

}  // namespace sextant
