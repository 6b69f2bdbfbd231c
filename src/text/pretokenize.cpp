// The kinds of pre-tokenizers and their loading (pretokenize.h).
#include "text/pretokenize.h"

#include <algorithm>

#include "io/quote.h"
#include "text/tokenizer_bytes.h"
#include "text/tokenizer_utf8.h"

namespace sextant {
namespace {

enum class Behavior : uint8_t { kRemoved, kIsolated, kWithPrevious, kWithNext, kContiguous };

// Turns the spans of one word into the spans that stay, in place.
void apply_behavior(Behavior behavior, std::vector<MatchSpan>& spans) {
  size_t n = 0;
  switch (behavior) {
    case Behavior::kIsolated: return;
    case Behavior::kRemoved:
      std::erase_if(spans, [](const MatchSpan& s) { return s.is_match; });
      return;
    case Behavior::kContiguous:
      for (const MatchSpan& s : spans) {
        if (n > 0 && spans[n - 1].is_match == s.is_match)
          spans[n - 1].end = s.end;
        else
          spans[n++] = s;
      }
      break;
    case Behavior::kWithPrevious: {
      // A match joins what stands before it, unless that is a match.
      bool previous_match = false;
      for (const MatchSpan s : spans) {
        if (s.is_match && !previous_match && n > 0)
          spans[n - 1].end = s.end;
        else
          spans[n++] = s;
        previous_match = s.is_match;
      }
      break;
    }
    case Behavior::kWithNext: {
      std::reverse(spans.begin(), spans.end());
      bool previous_match = false;
      for (const MatchSpan s : spans) {
        if (s.is_match && !previous_match && n > 0)
          spans[n - 1].begin = s.begin;
        else
          spans[n++] = s;
        previous_match = s.is_match;
      }
      spans.resize(n);
      std::reverse(spans.begin(), spans.end());
      return;
    }
  }
  spans.resize(n);
}

// Replaces a word by the spans in words.spans, relative to its begin; empty ones are left out.
void push_spans(Words& words, const Words::Word& word) {
  for (const MatchSpan& s : words.spans)
    if (s.end > s.begin)
      words.next_words.push_back(
          {word.begin + s.begin, word.begin + s.end, word.at_origin && s.begin == 0});
}

Status split_words(Words& words, const TextPattern& pattern, Behavior behavior, bool invert) {
  words.next_words.clear();
  for (const Words::Word& word : words.words) {
    words.spans.clear();
    SX_TRY(pattern.find(words.view(word), words.chars, words.spans));
    if (invert)
      for (MatchSpan& s : words.spans) s.is_match = !s.is_match;
    apply_behavior(behavior, words.spans);
    push_spans(words, word);
  }
  words.words.swap(words.next_words);
  return {};
}

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(TextPattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status apply(Words& words) const override {
    return split_words(words, pattern_, behavior_, invert_);
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool invert_;
};

// A test of single characters as a pattern: every character that holds is a match of its own.
template <bool (*test)(const CharText&, size_t)>
size_t single(const CharText& t, size_t i) {
  return test(t, i) ? i + 1 : i;
}
bool is_space_at(const CharText& t, size_t i) { return (t.cls[i] & kCharSpace) != 0; }
bool is_digit_at(const CharText& t, size_t i) { return (t.cls[i] & kCharNumeric) != 0; }
bool is_punctuation_at(const CharText& t, size_t i) { return (t.cls[i] & kCharPunctuation) != 0; }
// \w+|[^\w\s]+
size_t word_or_rest(const CharText& t, size_t i) {
  const auto kind = [&](size_t at) { return t.cls[at] & (kCharWord | kCharSpace); };
  const int first = kind(i);
  if (first & kCharSpace) return i;
  size_t end = i + 1;
  while (end < t.size() && kind(end) == first) ++end;
  return end;
}

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool prefix, bool use_regex) : prefix_(prefix), use_regex_(use_regex) {}
  Status apply(Words& words) const override {
    if (prefix_) add_prefix(words);
    if (use_regex_) SX_TRY(split_words(words, gpt2_, Behavior::kIsolated, false));
    words.next_text.clear();
    words.next_text.reserve(words.text.size() * 2);
    for (Words::Word& word : words.words) {
      const size_t begin = words.next_text.size();
      append_byte_chars(words.next_text, words.view(word));
      word.begin = begin;
      word.end = words.next_text.size();
    }
    words.text.swap(words.next_text);
    return {};
  }

 private:
  static void add_prefix(Words& words) {
    words.next_text.clear();
    for (Words::Word& word : words.words) {
      const size_t begin = words.next_text.size();
      if (words.text[word.begin] != ' ') words.next_text.push_back(' ');
      words.next_text += words.view(word);
      word.begin = begin;
      word.end = words.next_text.size();
    }
    words.text.swap(words.next_text);
  }

  bool prefix_, use_regex_;
  TextPattern gpt2_ = TextPattern::of_splitter(split_gpt2);
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options)
      : options_(std::move(options)), mark_(TextPattern::of_string(options_.replacement)) {}

  Status apply(Words& words) const override {
    using Prepend = MetaspaceOptions::Prepend;
    words.next_text.clear();
    for (Words::Word& word : words.words) {
      const size_t begin = words.next_text.size();
      const std::string_view old = words.view(word);
      const bool marked = old.starts_with(' ') || old.starts_with(options_.replacement);
      const bool wanted = options_.prepend == Prepend::kAlways ||
                          (options_.prepend == Prepend::kFirst && word.at_origin);
      if (wanted && !marked) words.next_text += options_.replacement;
      for (const char c : old) {
        if (c == ' ')
          words.next_text += options_.replacement;
        else
          words.next_text.push_back(c);
      }
      word.begin = begin;
      word.end = words.next_text.size();
    }
    words.text.swap(words.next_text);
    if (options_.split) return split_words(words, mark_, Behavior::kWithNext, false);
    return {};
  }

 private:
  MetaspaceOptions options_;
  TextPattern mark_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  Status apply(Words& words) const override {
    for (const auto& part : parts_) SX_TRY(part->apply(words));
    return {};
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

Result<Behavior> read_behavior(FieldReader& fields, std::string_view missing) {
  const std::string name = fields.text_or("behavior", missing);
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kWithPrevious;
  if (name == "MergedWithNext") return Behavior::kWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  SX_TRY(fields.finish());
  return fail_in(fields.place().field("behavior"), Code::kUnsupported,
                 "expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, "
                 "found {}",
                 quote_name(name));
}

Result<std::unique_ptr<PreTokenizer>> make_split(Splitter splitter, Behavior behavior) {
  return std::make_unique<SplitPreTokenizer>(TextPattern::of_splitter(splitter), behavior, false);
}

Result<std::unique_ptr<PreTokenizer>> load_split(FieldReader& fields) {
  const JsonValue* pattern = fields.any("pattern");
  const bool invert = fields.flag("invert");
  fields.text("behavior");
  SX_ASSIGN(const Behavior behavior, read_behavior(fields, ""));
  SX_TRY(fields.finish());
  SX_ASSIGN(TextPattern compiled, TextPattern::from_json(pattern, fields.place().field("pattern")));
  return std::make_unique<SplitPreTokenizer>(std::move(compiled), behavior, invert);
}

// BertPreTokenizer: white space goes, each punctuation character stands alone.
Result<std::unique_ptr<PreTokenizer>> load_bert() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  SX_ASSIGN(auto spaces, make_split(single<is_space_at>, Behavior::kRemoved));
  SX_ASSIGN(auto punctuation, make_split(single<is_punctuation_at>, Behavior::kIsolated));
  parts.push_back(std::move(spaces));
  parts.push_back(std::move(punctuation));
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

Result<std::unique_ptr<PreTokenizer>> load_byte_level(FieldReader& fields) {
  const bool prefix = fields.flag_or("add_prefix_space", true);
  const bool use_regex = fields.flag_or("use_regex", true);
  fields.ignore("trim_offsets");  // about offsets only
  SX_TRY(fields.finish());
  return std::make_unique<ByteLevelPreTokenizer>(prefix, use_regex);
}

Result<std::unique_ptr<PreTokenizer>> pre_tokenizer_at(const JsonValue& json,
                                                       const JsonPlace& place, int depth) {
  SX_ASSIGN(const std::string type, part_type(json, place));
  FieldReader fields(json, place);
  fields.ignore("type");
  if (type == "Sequence") {
    SX_ASSIGN(auto parts, load_sequence(fields, "pretokenizers", depth, pre_tokenizer_at));
    return std::make_unique<PreTokenizerSequence>(std::move(parts));
  }
  if (type == "Split") return load_split(fields);
  if (type == "ByteLevel") return load_byte_level(fields);
  if (type == "Metaspace") {
    SX_ASSIGN(MetaspaceOptions options, read_metaspace(fields));
    return std::make_unique<MetaspacePreTokenizer>(std::move(options));
  }
  if (type == "Digits") {
    const bool individual = fields.flag_or("individual_digits", false);
    SX_TRY(fields.finish());
    return make_split(single<is_digit_at>,
                      individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    SX_ASSIGN(const Behavior behavior, read_behavior(fields, "Isolated"));
    SX_TRY(fields.finish());
    return make_split(single<is_punctuation_at>, behavior);
  }
  if (type == "CharDelimiterSplit") {
    const std::string delimiter = fields.text("delimiter");
    SX_TRY(fields.finish());
    if (count_chars(delimiter) != 1)
      return fail_in(place.field("delimiter"), Code::kInput, "expected one character, found {}",
                     quote_name(delimiter));
    return std::make_unique<SplitPreTokenizer>(TextPattern::of_string(delimiter),
                                               Behavior::kRemoved, false);
  }
  const bool plain =
      type == "Whitespace" || type == "WhitespaceSplit" || type == "BertPreTokenizer";
  if (plain) SX_TRY(fields.finish());
  if (type == "WhitespaceSplit") return make_split(single<is_space_at>, Behavior::kRemoved);
  if (type == "BertPreTokenizer") return load_bert();
  if (type == "Whitespace")
    return std::make_unique<SplitPreTokenizer>(TextPattern::of_splitter(word_or_rest),
                                               Behavior::kRemoved, true);
  return fail_in(place.field("type"), Code::kUnsupported,
                 "expected a pre-tokenizer that is known (ByteLevel, Split, Metaspace, Digits, "
                 "Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, "
                 "Sequence), found {}",
                 quote_name(type));
}

}  // namespace

Result<MetaspaceOptions> read_metaspace(FieldReader& fields) {
  using Prepend = MetaspaceOptions::Prepend;
  MetaspaceOptions options;
  options.replacement = fields.text("replacement");
  const std::string scheme = fields.text_or("prepend_scheme", "always");
  // Files of old versions say add_prefix_space; false contradicts a scheme other than never.
  const bool add_prefix = fields.flag_or("add_prefix_space", scheme != "never");
  options.split = fields.flag_or("split", true);
  fields.ignore("str_rep");
  SX_TRY(fields.finish());
  if (count_chars(options.replacement) != 1)
    return fail_in(fields.place().field("replacement"), Code::kInput,
                   "expected one character, found {}", quote_name(options.replacement));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return fail_in(fields.place().field("prepend_scheme"), Code::kUnsupported,
                   "expected always, first or never, found {}", quote_name(scheme));
  options.prepend = scheme == "first"                  ? Prepend::kFirst
                    : scheme == "never" || !add_prefix ? Prepend::kNever
                                                       : Prepend::kAlways;
  return options;
}

Result<std::unique_ptr<PreTokenizer>> load_pretokenizer(const JsonValue& json,
                                                        const JsonPlace& place) {
  return pre_tokenizer_at(json, place, 0);
}

}  // namespace sextant
