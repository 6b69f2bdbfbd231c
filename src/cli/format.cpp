#include "cli/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

namespace sextant {
namespace {

// Three significant digits: 1.50, 15.0, 150.
std::string three_digits(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

std::string format_bytes(double n_bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (n_bytes >= 999.5 && unit + 1 < kUnits.size()) {
    n_bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", n_bytes);
  return fmt::format("{} {}", three_digits(n_bytes), kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{} ms", three_digits(seconds * 1e3));
  if (seconds < 60) return fmt::format("{} s", three_digits(seconds));
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e9));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string format_count(int64_t n) {
  const std::string digits = fmt::format("{}", n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool group_end = (digits.size() - i) % 3 == 0;
    if (i > 0 && group_end && digits[i - 1] != '-') out += ',';
    out += digits[i];
  }
  return out;
}

std::optional<int64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  struct Row {
    std::string_view name;
    double factor;
  };
  constexpr Row kRows[] = {{"", 1},
                           {"b", 1},
                           {"k", 1e3},
                           {"kb", 1e3},
                           {"m", 1e6},
                           {"mb", 1e6},
                           {"g", 1e9},
                           {"gb", 1e9},
                           {"t", 1e12},
                           {"tb", 1e12},
                           {"kib", 1024.0},
                           {"mib", 1048576.0},
                           {"gib", 1073741824.0},
                           {"tib", 1099511627776.0}};
  const std::string wanted = lower(unit);
  for (const Row& row : kRows) {
    if (row.name != wanted) continue;
    const double bytes = number * row.factor;
    if (!(bytes >= 0 && bytes < 9.2e18)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::vector<std::string> close_matches(std::string_view typed,
                                       const std::vector<std::string>& candidates) {
  std::vector<std::pair<size_t, std::string>> ranked;
  const std::string wanted = lower(typed);
  for (const std::string& candidate : candidates) {
    const std::string have = lower(candidate);
    size_t distance = edit_distance(wanted, have);
    // Part of a longer name counts as close: "smollm2" for "smollm2-135m-nvfp4".
    if (wanted.size() >= 3 && have.find(wanted) != std::string::npos) distance = 1;
    if (distance <= std::max<size_t>(2, wanted.size() / 3))
      ranked.emplace_back(distance, candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > 3) ranked.resize(3);
  std::vector<std::string> out;
  for (auto& [distance, name] : ranked) out.push_back(std::move(name));
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

}  // namespace sextant
