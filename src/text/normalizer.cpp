// The kinds of normalizers and their loading (normalizer.h).
#include "text/normalizer.h"

#include <vector>

#include "io/quote.h"
#include "text/tokenizer_bytes.h"
#include "text/tokenizer_pattern.h"
#include "text/tokenizer_utf8.h"
#include "text/unicode_tables.h"

namespace sextant {
namespace {

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  Status apply(NormalText& t) const override {
    t.text = to_normal_form(t.text, form_);
    return {};
  }

 private:
  NormalForm form_;
};

// Keeps, maps or drops each character.
template <class F>
void rewrite(NormalText& t, F&& f) {
  std::string out;
  out.reserve(t.text.size());
  for (size_t at = 0; at < t.text.size();) {
    const bool first = at == 0;
    const uint32_t c = next_char(t.text, at);
    const size_t before = out.size();
    f(c, out);
    if (first && out.size() == before) t.begins_at_origin = false;
  }
  t.text = std::move(out);
}

class Lowercase final : public Normalizer {
 public:
  Status apply(NormalText& t) const override {
    rewrite(t, [](uint32_t c, std::string& out) { append_lower(out, c); });
    return {};
  }
};

class StripAccents final : public Normalizer {
 public:
  Status apply(NormalText& t) const override {
    const CharTable& table = char_table();
    rewrite(t, [&](uint32_t c, std::string& out) {
      if ((table[c] & kCharAccent) == 0) append_utf8(out, c);
    });
    return {};
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  Status apply(NormalText& t) const override {
    std::string out;
    append_byte_chars(out, t.text);
    t.text = std::move(out);
    return {};
  }
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string text) : text_(std::move(text)) {}
  Status apply(NormalText& t) const override {
    if (!t.text.empty()) t.text.insert(0, text_);
    return {};
  }

 private:
  std::string text_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status apply(NormalText& t) const override {
    const CharTable& table = char_table();
    size_t end = t.text.size();
    while (right_ && end > 0) {
      const size_t begin = char_before(t.text, end);
      size_t at = begin;
      if ((table[next_char(t.text, at)] & kCharSpace) == 0) break;
      end = begin;
    }
    size_t begin = 0;
    while (left_ && begin < end) {
      size_t at = begin;
      if ((table[next_char(t.text, at)] & kCharSpace) == 0) break;
      begin = at;
    }
    if (begin > 0) t.begins_at_origin = false;
    t.text = t.text.substr(begin, end - begin);
    return {};
  }

 private:
  bool left_, right_;
};

class Replace final : public Normalizer {
 public:
  Replace(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status apply(NormalText& t) const override {
    CharText chars;
    std::vector<MatchSpan> spans;
    SX_TRY(pattern_.find(t.text, chars, spans));
    std::string out;
    out.reserve(t.text.size());
    for (const MatchSpan& s : spans) {
      if (s.is_match)
        out += content_;
      else
        out.append(t.text, s.begin, s.end - s.begin);
    }
    if (!spans.empty() && spans.front().is_match && content_.empty()) t.begins_at_origin = false;
    t.text = std::move(out);
    return {};
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

bool is_cjk(uint32_t c) {
  constexpr struct {
    uint32_t low, high;
  } kRanges[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                 {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  for (const auto& r : kRanges)
    if (c >= r.low && c <= r.high) return true;
  return false;
}

class BertNormalizer final : public Normalizer {
 public:
  BertNormalizer(bool clean, bool cjk, bool accents, bool lower)
      : clean_(clean), cjk_(cjk), accents_(accents), lower_(lower) {}

  Status apply(NormalText& t) const override {
    const CharTable& table = char_table();
    if (clean_)
      rewrite(t, [&](uint32_t c, std::string& out) {
        const CharClass cls = table[c];
        const bool white = (cls & kCharSpace) != 0;
        if ((cls & kCharBertControl) == 0) append_utf8(out, white ? ' ' : c);
      });
    if (cjk_)
      rewrite(t, [](uint32_t c, std::string& out) {
        const bool spaced = is_cjk(c);
        if (spaced) out.push_back(' ');
        append_utf8(out, c);
        if (spaced) out.push_back(' ');
      });
    if (accents_) {
      t.text = to_normal_form(t.text, NormalForm::kNfd);
      rewrite(t, [&](uint32_t c, std::string& out) {
        if ((table[c] & kCharBertAccent) == 0) append_utf8(out, c);
      });
    }
    if (lower_) rewrite(t, [](uint32_t c, std::string& out) { append_lower(out, c); });
    return {};
  }

 private:
  bool clean_, cjk_, accents_, lower_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  Status apply(NormalText& t) const override {
    for (const auto& part : parts_) SX_TRY(part->apply(t));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

Result<std::unique_ptr<Normalizer>> load_bert(FieldReader& fields) {
  const bool clean = fields.flag_or("clean_text", true);
  const bool cjk = fields.flag_or("handle_chinese_chars", true);
  const bool lower = fields.flag_or("lowercase", true);
  const bool accents = fields.flag_or("strip_accents", lower);
  SX_TRY(fields.finish());
  return std::make_unique<BertNormalizer>(clean, cjk, accents, lower);
}

Result<std::unique_ptr<Normalizer>> normalizer_at(const JsonValue& json, const JsonPlace& place,
                                                  int depth) {
  SX_ASSIGN(const std::string type, part_type(json, place));
  FieldReader fields(json, place);
  fields.ignore("type");
  std::unique_ptr<Normalizer> plain;
  if (type == "NFC") plain = std::make_unique<FormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") plain = std::make_unique<FormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") plain = std::make_unique<FormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") plain = std::make_unique<FormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") plain = std::make_unique<Lowercase>();
  if (type == "StripAccents") plain = std::make_unique<StripAccents>();
  if (type == "ByteLevel") plain = std::make_unique<ByteLevelNormalizer>();
  if (plain != nullptr) {
    SX_TRY(fields.finish());
    return plain;
  }
  if (type == "Sequence") {
    SX_ASSIGN(auto parts, load_sequence(fields, "normalizers", depth, normalizer_at));
    return std::make_unique<NormalizerSequence>(std::move(parts));
  }
  if (type == "BertNormalizer") return load_bert(fields);
  if (type == "Precompiled") return load_precompiled(fields);
  if (type == "Prepend") {
    std::string text = fields.text("prepend");
    SX_TRY(fields.finish());
    return std::make_unique<PrependNormalizer>(std::move(text));
  }
  if (type == "Strip") {
    const bool left = fields.flag("strip_left");
    const bool right = fields.flag("strip_right");
    SX_TRY(fields.finish());
    return std::make_unique<Strip>(left, right);
  }
  if (type == "Replace") {
    const JsonValue* pattern = fields.any("pattern");
    std::string content = fields.text("content");
    SX_TRY(fields.finish());
    SX_ASSIGN(TextPattern compiled, TextPattern::from_json(pattern, place.field("pattern")));
    return std::make_unique<Replace>(std::move(compiled), std::move(content));
  }
  return fail_in(place.field("type"), Code::kUnsupported,
                 "expected a normalizer that is known (NFC, NFD, NFKC, NFKD, Lowercase, Replace, "
                 "Prepend, Strip, StripAccents, Precompiled, BertNormalizer, ByteLevel, Sequence), "
                 "found {}",
                 quote_name(type));
}

}  // namespace

Result<std::unique_ptr<Normalizer>> load_normalizer(const JsonValue& json, const JsonPlace& place) {
  return normalizer_at(json, place, 0);
}

}  // namespace sextant
