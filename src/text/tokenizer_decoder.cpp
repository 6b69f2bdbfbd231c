// The kinds of decoders and their loading (tokenizer_decoder.h).
#include "text/tokenizer_decoder.h"

#include <algorithm>
#include <optional>

#include "io/quote.h"
#include "text/pretokenize.h"
#include "text/tokenizer_bytes.h"
#include "text/tokenizer_utf8.h"

namespace sextant {
namespace {

using Pieces = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  size_t done = 0;
  for (size_t at = 0; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    out.append(text, done, at - done);
    out += to;
  }
  out.append(text, done);
  text = std::move(out);
}

// Characters of the byte alphabet back to bytes; a token with any other character stands for
// itself.
class ByteLevelDecoder final : public TokenDecoder {
 public:
  void apply(Pieces& pieces) const override {
    std::string bytes;
    for (const std::string& piece : pieces) {
      const size_t begin = bytes.size();
      for (size_t at = 0; at < piece.size();) {
        const uint32_t c = next_char(piece, at);
        const int b = c < kByteAlphabet.byte.size() ? kByteAlphabet.byte[c] : -1;
        if (b < 0) {
          bytes.resize(begin);
          bytes += piece;
          break;
        }
        bytes.push_back(static_cast<char>(b));
      }
    }
    pieces.assign(1, utf8_lossy(bytes));
  }
};

// <0x0A> and the like are bytes; a run of them is a string if it is UTF-8, else one U+FFFD a byte.
class ByteFallbackDecoder final : public TokenDecoder {
 public:
  void apply(Pieces& pieces) const override {
    Pieces out;
    std::string bytes;
    const auto flush = [&] {
      if (utf8_valid(bytes)) {
        if (!bytes.empty()) out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacementChar));
      }
      bytes.clear();
    };
    for (std::string& piece : pieces) {
      if (const auto byte = byte_of(piece)) {
        bytes.push_back(static_cast<char>(*byte));
        continue;
      }
      flush();
      out.push_back(std::move(piece));
    }
    flush();
    pieces = std::move(out);
  }

 private:
  static std::optional<int> byte_of(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return {};
    int value = 0;
    // Rust's parser, which the package asks, takes a plus sign, too: <0x+1> is the byte 1.
    const size_t sign = piece[3] == '+' ? 1 : 0;
    for (const char c : piece.substr(3 + sign, 2 - sign)) {
      const char low = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9')
        value = value * 16 + (c - '0');
      else if (low >= 'a' && low <= 'f')
        value = value * 16 + (low - 'a' + 10);
      else
        return {};
    }
    return value;
  }
};

class FuseDecoder final : public TokenDecoder {
 public:
  void apply(Pieces& pieces) const override {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    pieces.assign(1, std::move(all));
  }
};

// Takes up to `start` and `stop` times the character off the ends of every piece.
class StripDecoder final : public TokenDecoder {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Pieces& pieces) const override {
    for (std::string& piece : pieces) {
      std::string_view view = piece;
      for (int64_t i = 0; i < start_ && view.starts_with(content_); ++i)
        view.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && view.ends_with(content_); ++i)
        view.remove_suffix(content_.size());
      piece = std::string(view);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder final : public TokenDecoder {
 public:
  ReplaceDecoder(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Pieces& pieces) const override {
    CharText chars;
    std::vector<MatchSpan> spans;
    for (std::string& piece : pieces) {
      spans.clear();
      if (!pattern_.find(piece, chars, spans)) continue;  // over a limit: the piece stays
      std::string out;
      for (const MatchSpan& s : spans) {
        if (s.is_match)
          out += content_;
        else
          out.append(piece, s.begin, s.end - s.begin);
      }
      piece = std::move(out);
    }
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  explicit MetaspaceDecoder(MetaspaceOptions options) : options_(std::move(options)) {}
  void apply(Pieces& pieces) const override {
    const bool drop_first = options_.prepend != MetaspaceOptions::Prepend::kNever;
    for (size_t i = 0; i < pieces.size(); ++i)
      replace_all(pieces[i], options_.replacement, i == 0 && drop_first ? "" : " ");
  }

 private:
  MetaspaceOptions options_;
};

void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class WordPieceDecoder final : public TokenDecoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(Pieces& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (i > 0) {
        if (piece.starts_with(prefix_))
          piece.erase(0, prefix_.size());
        else
          piece.insert(0, 1, ' ');
      }
      if (cleanup_) clean_up(piece);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class BpeDecoder final : public TokenDecoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Pieces& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i)
      replace_all(pieces[i], suffix_, i + 1 == pieces.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class DecoderSequence final : public TokenDecoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<TokenDecoder>> parts)
      : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

Result<std::unique_ptr<TokenDecoder>> load_strip(FieldReader& fields) {
  std::string content = fields.text("content");
  const int64_t start = fields.integer("start", 0, 1 << 20);
  const int64_t stop = fields.integer("stop", 0, 1 << 20);
  SX_TRY(fields.finish());
  if (count_chars(content) != 1)
    return fail_in(fields.place().field("content"), Code::kInput,
                   "expected one character, found {}", quote_name(content));
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}

Result<std::unique_ptr<TokenDecoder>> decoder_at(const JsonValue& json, const JsonPlace& place,
                                                 int depth) {
  SX_ASSIGN(const std::string type, part_type(json, place));
  FieldReader fields(json, place);
  fields.ignore("type");
  if (type == "Sequence") {
    SX_ASSIGN(auto parts, load_sequence(fields, "decoders", depth, decoder_at));
    return std::make_unique<DecoderSequence>(std::move(parts));
  }
  if (type == "Strip") return load_strip(fields);
  if (type == "ByteLevel") {
    for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.ignore(name);
    SX_TRY(fields.finish());
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type == "ByteFallback" || type == "Fuse") {
    SX_TRY(fields.finish());
    if (type == "Fuse") return std::make_unique<FuseDecoder>();
    return std::make_unique<ByteFallbackDecoder>();
  }
  if (type == "Replace") {
    const JsonValue* pattern = fields.any("pattern");
    std::string content = fields.text("content");
    SX_TRY(fields.finish());
    SX_ASSIGN(TextPattern compiled, TextPattern::from_json(pattern, place.field("pattern")));
    return std::make_unique<ReplaceDecoder>(std::move(compiled), std::move(content));
  }
  if (type == "Metaspace") {
    SX_ASSIGN(MetaspaceOptions options, read_metaspace(fields));
    return std::make_unique<MetaspaceDecoder>(std::move(options));
  }
  if (type == "WordPiece") {
    std::string prefix = fields.text_or("prefix", "##");
    const bool cleanup = fields.flag_or("cleanup", true);
    SX_TRY(fields.finish());
    return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
  }
  if (type == "BPEDecoder") {
    std::string suffix = fields.text_or("suffix", "</w>");
    SX_TRY(fields.finish());
    return std::make_unique<BpeDecoder>(std::move(suffix));
  }
  return fail_in(place.field("type"), Code::kUnsupported,
                 "expected a decoder that is known (ByteLevel, ByteFallback, Fuse, Strip, Replace, "
                 "Metaspace, WordPiece, BPEDecoder, Sequence), found {}",
                 quote_name(type));
}

}  // namespace

Result<std::unique_ptr<TokenDecoder>> load_decoder(const JsonValue& json, const JsonPlace& place) {
  return decoder_at(json, place, 0);
}

}  // namespace sextant
