// TextPattern over PCRE2 (tokenizer_pattern.h). Patterns that are not known get PCRE2's Unicode
// version, which is older than the oracle's; its limits keep a bad pattern from running away.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_pattern.h"

#include <pcre2.h>

#include <algorithm>

#include "io/quote.h"
#include "text/tokenizer_utf8.h"

namespace sextant {

// Not in the anonymous namespace: TextPattern::Regex has one.
template <auto free_function>
struct FreeWith {
  template <class T>
  void operator()(T* p) const {
    free_function(p);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>>;
using DataPtr = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using ContextPtr = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using StackPtr = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;

namespace {

constexpr uint32_t kMatchLimit = 20'000'000;  // steps of one match
constexpr uint32_t kDepthLimit = 20'000'000;  // nested backtracking
constexpr uint32_t kHeapLimitKib = 512 * 1024;
constexpr size_t kJitStackBytes = size_t{64} << 20;

std::string pcre2_message(int error) {
  PCRE2_UCHAR buffer[256];
  const int n = pcre2_get_error_message(error, buffer, sizeof buffer);
  return n < 0 ? fmt::format("error {}", error)
               : std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

// Escapes that mean something else to Oniguruma than to PCRE2.
std::string_view differing_escape(std::string_view pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    if (std::string_view("hHRXOyYKGQEgN").find(pattern[i + 1]) != std::string_view::npos)
      return pattern.substr(i, 2);
    ++i;
  }
  return {};
}

}  // namespace

struct TextPattern::Regex {
  CodePtr code;
  std::string text;
};

TextPattern::TextPattern() = default;
TextPattern::TextPattern(TextPattern&&) noexcept = default;
TextPattern& TextPattern::operator=(TextPattern&&) noexcept = default;
TextPattern::~TextPattern() = default;

TextPattern TextPattern::of_splitter(Splitter splitter) {
  TextPattern p;
  p.splitter_ = splitter;
  return p;
}

TextPattern TextPattern::of_string(std::string_view literal) {
  TextPattern p;
  p.literal_ = literal;
  return p;
}

Result<TextPattern> TextPattern::from_json(const JsonValue* json, const JsonPlace& place) {
  TextPattern result;
  const JsonValue* text = nullptr;
  bool is_regex = false;
  if (json != nullptr && json->is_string()) {
    text = json;  // decoders of old files
  } else if (json != nullptr && json->is_object() && json->members().size() == 1) {
    is_regex = json->find("Regex") != nullptr;
    text = json->find(is_regex ? "Regex" : "String");
  }
  if (text == nullptr || !text->is_string())
    return fail_in(place, Code::kInput,
                   "expected {{\"String\": ...}} or {{\"Regex\": ...}}, found {}",
                   json == nullptr ? "nothing" : json->kind_name());
  const std::string& pattern = text->as_string();
  if (pattern.size() > kMaxPatternBytes)
    return fail_in(place, Code::kInput, "expected a pattern of at most {} bytes, found {}",
                   kMaxPatternBytes, pattern.size());
  if (!is_regex && !pattern.empty()) return of_string(pattern);
  if (Splitter known = find_splitter(pattern)) return of_splitter(known);
  if (const std::string_view bad = differing_escape(pattern); !bad.empty())
    return fail_in(place, Code::kUnsupported,
                   "expected a pattern without {}, whose meaning depends on the engine, found {}",
                   bad, quote_name(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's default syntax: ^ and $ stand at every line.
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, nullptr));
  if (code == nullptr)
    return fail_in(place, Code::kInput, "cannot use the pattern {}: {} at byte {}",
                   quote_name(pattern), pcre2_message(error), offset);
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where it fails the interpreter serves
  result.regex_ = std::make_unique<Regex>(Regex{std::move(code), pattern});
  return result;
}

Status TextPattern::find(std::string_view text, CharText& chars,
                         std::vector<MatchSpan>& spans) const {
  if (text.empty()) return {};
  if (regex_ != nullptr) return find_regex(text, spans);
  size_t done = 0;
  const auto match = [&](size_t begin, size_t end) {
    if (begin > done) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = end;
  };
  if (splitter_ != nullptr) {
    chars.assign(text);
    size_t i = 0;
    while (i < chars.size()) {
      const size_t end = splitter_(chars, i);
      if (end > i) match(chars.begin[i], chars.begin[end]);
      i = std::max(end, i + 1);
    }
  } else {
    size_t at = 0;
    while ((at = text.find(literal_, at)) != std::string_view::npos) {
      match(at, at + literal_.size());
      at = done;
    }
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
  return {};
}

Status TextPattern::find_regex(std::string_view text, std::vector<MatchSpan>& spans) const {
  const DataPtr data(pcre2_match_data_create(1, nullptr));
  const ContextPtr context(pcre2_match_context_create(nullptr));
  if (data == nullptr || context == nullptr)
    return fail(Code::kResources, "not enough memory to match the pattern {}",
                quote_name(regex_->text));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  StackPtr stack;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto run = [&](size_t at) {
    const auto once = [&](uint32_t options) {
      return pcre2_match(regex_->code.get(), subject, text.size(), at, options | PCRE2_NO_UTF_CHECK,
                         data.get(), context.get());
    };
    int rc = once(0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
      stack.reset(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      rc = once(0);
    }
    return rc == PCRE2_ERROR_JIT_STACKLIMIT ? once(PCRE2_NO_JIT) : rc;
  };
  size_t at = 0;
  size_t done = 0;                           // end of the last span
  size_t last_end = std::string_view::npos;  // no empty match right behind a match
  while (at <= text.size()) {
    const int rc = run(at);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      return fail(Code::kInput, "the split pattern {} gave up on this text: {}",
                  quote_name(regex_->text), pcre2_message(rc));
    const size_t begin = pcre2_get_ovector_pointer(data.get())[0];
    const size_t end = pcre2_get_ovector_pointer(data.get())[1];
    if (begin == end && end == last_end) {
      if (at >= text.size()) break;
      at += char_bytes(text[at]);
      continue;
    }
    at = last_end = end;
    if (begin > done) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
  return {};
}

}  // namespace sextant
