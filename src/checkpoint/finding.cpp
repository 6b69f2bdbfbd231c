// Merging of findings, and the one sentence with which a load is refused.
#include "checkpoint/finding.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "checkpoint/patterns.h"

namespace sextant {
namespace {

constexpr size_t kMaxInstances = 8;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

// "C14" after "C3": family first, then the number.
std::pair<char, int64_t> id_order(const std::string& id) {
  if (id.empty()) return {' ', 0};
  return {id[0], whole_number(std::string_view(id).substr(1)).value_or(0)};
}

}  // namespace

NamePosition name_position(std::string_view name) {
  NamePosition position;
  std::string_view before;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, dot - begin);
    if (const auto number = whole_number(part)) {
      if (!position.layer && (before == "layers" || before == "h" || before == "blocks" ||
                              before == "block" || before == "mtp"))
        position.layer = number;
      if (!position.expert && before == "experts") position.expert = number;
    }
    before = part;
    begin = dot + 1;
  }
  return position;
}

Result<std::vector<Allowance>> parse_allowances(std::span<const std::string> specs) {
  std::vector<Allowance> allowed;
  for (const std::string& spec : specs) {
    const size_t colon = spec.find(':');
    Allowance allowance{spec.substr(0, colon),
                        colon == std::string::npos ? "*" : spec.substr(colon + 1)};
    const std::string_view id = allowance.id;
    if (id.size() < 2 || id[0] < 'A' || id[0] > 'Z' || !whole_number(id.substr(1)) ||
        allowance.pattern.empty())
      return fail_at(Where{{}, {}, "--allow", {}}, Code::kUsage,
                     "--allow: expected ID or ID:PATTERN, as C16 or C16:'model.extra.*', found "
                     "\"{}\"",
                     spec);
    allowed.push_back(std::move(allowance));
  }
  return allowed;
}

bool allows(std::span<const Allowance> allowed, std::string_view id, std::string_view name) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const Allowance& allowance) {
    return allowance.id == id && shell_match(allowance.pattern, name);
  });
}

void FindingSet::add(Finding finding, double badness) {
  if (finding.severity == Severity::kError &&
      allows(allowed_, finding.id, finding.tensor.empty() ? finding.file : finding.tensor)) {
    finding.severity = Severity::kWarning;
    finding.message += " (allowed)";
  }
  const NamePosition position = name_position(finding.tensor);
  if (!finding.layer) finding.layer = position.layer;
  if (!finding.expert) finding.expert = position.expert;
  if (finding.instances.empty() && !finding.tensor.empty())
    finding.instances.push_back(finding.tensor);

  auto& entry = entries_[{finding.id, finding.slug, finding.severity, finding.activation_only}];
  if (entry.n_added++ == 0) {
    entry.finding = std::move(finding);
    entry.badness = badness;
    return;
  }
  const int64_t count = entry.finding.count + finding.count;
  std::vector<std::string> instances = std::move(entry.finding.instances);
  const bool worse = badness > entry.badness;
  instances.insert(worse ? instances.begin() : instances.end(), finding.instances.begin(),
                   finding.instances.end());
  if (instances.size() > kMaxInstances) instances.resize(kMaxInstances);
  if (worse) {
    entry.finding = std::move(finding);
    entry.badness = badness;
  }
  entry.finding.count = count;
  entry.finding.instances = std::move(instances);
}

std::vector<Finding> FindingSet::take() {
  std::vector<Finding> findings;
  for (auto& [key, entry] : entries_) {
    Finding& finding = entry.finding;
    if (entry.n_added > 1 && finding.instances.size() > 1) {
      const std::vector<std::string> others(finding.instances.begin() + 1, finding.instances.end());
      finding.message +=
          fmt::format("; {} more: {}{}", entry.n_added - 1, fmt::join(others, ", "),
                      static_cast<int64_t>(others.size()) < entry.n_added - 1 ? ", ..." : "");
    }
    findings.push_back(std::move(finding));
  }
  entries_.clear();
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    return id_order(a.id) < id_order(b.id);
  });
  return findings;
}

Status refuse_errors(std::span<const Finding> findings, bool uses_activation_scales) {
  const Finding* first = nullptr;
  int64_t n_errors = 0;
  for (const Finding& finding : findings) {
    if (finding.severity != Severity::kError) continue;
    if (finding.activation_only && !uses_activation_scales) continue;
    if (first == nullptr) first = &finding;
    ++n_errors;
  }
  if (first == nullptr) return {};
  std::string text = first->message;
  if (!first->remedy.empty()) text += ": " + first->remedy;
  if (n_errors > 1) text += fmt::format(" ({} more kinds of error in this model)", n_errors - 1);
  return fail_at(Where{first->file, first->tensor, {}, first->offset}, Code::kModel, "{} [{} {}]",
                 text, first->id, first->slug);
}

}  // namespace sextant
