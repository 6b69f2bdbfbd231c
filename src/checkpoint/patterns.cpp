// The shell matcher (own code: POSIX fnmatch differs in escapes and classes) and PCRE2 for "re:".
#include "checkpoint/patterns.h"

#include <algorithm>
#include <cctype>

#include "io/quote.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace sextant {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr uint32_t kMatchLimit = 200'000;  // steps for one name; real patterns need some hundreds
constexpr std::string_view kRegexPrefix = "re:";
// Exporters name a wrapped linear by the wrapper's inner module (case C053).
constexpr std::string_view kWrapperSuffix = ".linear";

// One element of a pattern at p: the end of the element, and whether c is in it. '[' without a
// closing bracket is a plain character, as in Python.
struct ElementMatch {
  size_t end = 0;
  bool matched = false;
};
ElementMatch match_element(std::string_view pattern, size_t p, char c) {
  if (pattern[p] == '?') return {p + 1, true};
  if (pattern[p] != '[') return {p + 1, pattern[p] == c};
  size_t i = p + 1;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  // A ']' directly after the opening is a member.
  const size_t first = i;
  const size_t search = first < pattern.size() && pattern[first] == ']' ? first + 1 : first;
  const size_t close = pattern.find(']', search);
  if (close == std::string_view::npos) return {p + 1, c == '['};
  bool inside = false;
  while (i < close) {
    if (i + 2 < close && pattern[i + 1] == '-') {
      inside = inside || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 3;
    } else {
      inside = inside || pattern[i] == c;
      ++i;
    }
  }
  return {close + 1, inside != negated};
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [&](char a, char b) { return lower(a) == lower(b); }) != text.end();
}

bool has_wildcard(std::string_view pattern) {
  return pattern.find_first_of("*?[") != std::string_view::npos;
}

bool prefix_match(std::string_view pattern, std::string_view name) {
  if (shell_match(pattern, name)) return true;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (shell_match(pattern, name.substr(0, dot))) return true;
    if (!has_wildcard(pattern) && name.substr(dot + 1) == pattern) return true;
  }
  return false;
}

}  // namespace

bool shell_match(std::string_view pattern, std::string_view name) {
  // Greedy with one way back: only the last '*' needs to be reconsidered, because an earlier one
  // can give up no more than a later one already covers.
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t star_n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      star_n = n;
      continue;
    }
    if (p < pattern.size()) {
      const ElementMatch element = match_element(pattern, p, name[n]);
      if (element.matched) {
        p = element.end;
        ++n;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    p = star;
    n = ++star_n;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

struct PatternMatcher::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  ~Regex() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
};

PatternMatcher::PatternMatcher(PatternMatcher&&) noexcept = default;
PatternMatcher& PatternMatcher::operator=(PatternMatcher&&) noexcept = default;
PatternMatcher::~PatternMatcher() = default;

Result<PatternMatcher> PatternMatcher::compile(std::string_view pattern, PatternStyle style,
                                               bool class_targets) {
  if (pattern.size() > kMaxPatternBytes)
    return fail(Code::kInput, "expected patterns of at most {} bytes, found one of {}",
                kMaxPatternBytes, pattern.size());
  PatternMatcher matcher;
  matcher.pattern_ = pattern;
  matcher.style_ = style;
  matcher.class_targets_ = class_targets;
  if (style != PatternStyle::kExact || !pattern.starts_with(kRegexPrefix)) return matcher;

  const std::string_view expression = pattern.substr(kRegexPrefix.size());
  matcher.regex_ = std::make_unique<Regex>();
  int error = 0;
  size_t offset = 0;
  matcher.regex_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                       expression.size(), PCRE2_UTF, &error, &offset, nullptr);
  if (matcher.regex_->code == nullptr) {
    char text[160] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    return fail(Code::kInput, "the pattern {} is not a regular expression: {} at character {}",
                quote_name(pattern), text, offset);
  }
  matcher.regex_->data = pcre2_match_data_create(1, nullptr);
  matcher.regex_->context = pcre2_match_context_create(nullptr);
  if (matcher.regex_->data == nullptr || matcher.regex_->context == nullptr)
    return fail(Code::kResources, "out of memory for a regular expression");
  pcre2_set_match_limit(matcher.regex_->context, kMatchLimit);
  return matcher;
}

Result<bool> PatternMatcher::matches(const ModuleName& module) const {
  if (style_ == PatternStyle::kShell) return shell_match(pattern_, module.name);
  if (style_ == PatternStyle::kPrefix) return prefix_match(pattern_, module.name);
  if (regex_) {
    const int n = pcre2_match(regex_->code, reinterpret_cast<PCRE2_SPTR>(module.name.data()),
                              module.name.size(), 0, PCRE2_ANCHORED, regex_->data, regex_->context);
    if (n >= 0) return true;
    if (n == PCRE2_ERROR_NOMATCH) return false;
    return fail(Code::kResources,
                "the pattern {} needs more than {} steps on the module {}; write it without nested "
                "repetition",
                quote_name(pattern_), kMatchLimit, quote_name(module.name));
  }
  if (module.name == pattern_) return true;
  if (module.name.size() + kWrapperSuffix.size() == pattern_.size() &&
      pattern_.starts_with(module.name) && pattern_.ends_with(kWrapperSuffix))
    return true;
  return class_targets_ && contains_ignoring_case(module.class_name, pattern_);
}

Result<std::vector<size_t>> PatternMatcher::match(const std::vector<ModuleName>& modules) const {
  size_t begin = 0;
  size_t end = modules.size();
  // Long lists of plain names and of "prefix*" are usual: only names with the literal prefix of a
  // shell pattern can match, and those are neighbors.
  if (style_ == PatternStyle::kShell) {
    const std::string prefix = pattern_.substr(0, pattern_.find_first_of("*?["));
    const auto first = std::lower_bound(
        modules.begin(), modules.end(), prefix,
        [](const ModuleName& module, const std::string& text) { return module.name < text; });
    const auto last = std::partition_point(first, modules.end(), [&](const ModuleName& module) {
      return module.name.starts_with(prefix);
    });
    begin = static_cast<size_t>(first - modules.begin());
    end = static_cast<size_t>(last - modules.begin());
  }
  std::vector<size_t> matched;
  for (size_t i = begin; i < end; ++i) {
    SX_ASSIGN(const bool yes, matches(modules[i]));
    if (yes) matched.push_back(i);
  }
  return matched;
}

}  // namespace sextant
