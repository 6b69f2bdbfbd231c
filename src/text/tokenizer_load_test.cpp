// Broken and unusual tokenizer.json files: each is refused with one sentence that names the place,
// or read with the meaning that its test states. Row numbers are those of the list of inputs that
// the design checks loaders against.
#include <gtest/gtest.h>

#include "io/json.h"
#include "text/tokenizer.h"

namespace sextant {
namespace {

using Loaded = Result<std::shared_ptr<const Tokenizer>>;

Loaded load(const std::string& text) {
  const auto json = parse_json(text, "tokenizer.json");
  if (!json) return tl::unexpected<Error>(json.error());
  return Tokenizer::from_json(*json, "tokenizer.json");
}

// A small BPE model with one part replaced.
std::string file(const std::string& model, const std::string& rest = "") {
  return R"({"model": )" + model + (rest.empty() ? "" : ", " + rest) + "}";
}
std::string bpe(const std::string& vocab, const std::string& merges = "") {
  return R"({"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": [)" + merges + "]}";
}
const std::string kPlain = bpe(R"("a": 0, "b": 1, "ab": 2)", R"(["a", "b"])");

void expect_refused(const std::string& text, Code code, const std::string& part) {
  const Loaded loaded = load(text);
  ASSERT_FALSE(loaded) << text.substr(0, 200);
  EXPECT_EQ(loaded.error().code, code) << loaded.error().text;
  EXPECT_NE(loaded.error().text.find(part), std::string::npos) << loaded.error().text;
  EXPECT_EQ(loaded.error().text.find('\n'), std::string::npos) << loaded.error().text;
  EXPECT_LT(loaded.error().text.size(), 1000U);
}

TEST(TokenizerLoad, SmallestFile) {
  const Loaded t = load(file(kPlain));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ(*(*t)->encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ((*t)->decode(std::vector<int32_t>{2, 0}), "ab a");  // no decoder: joined by spaces
}

// Row 49.
TEST(TokenizerLoad, Row49MergeOfAnUnknownToken) {
  expect_refused(file(bpe(R"("a": 0, "b": 1, "ab": 2)", R"(["a", "q"])")), Code::kInput, "'q'");
  expect_refused(file(bpe(R"("a": 0, "b": 1)", R"(["a", "b"])")), Code::kInput, "'ab'");
  expect_refused(file(bpe(R"("a": 0, "b": 1, "ab": 2)", R"("a b c")")), Code::kInput, "merges[0]");
  expect_refused(file(bpe(R"("a": 0, "b": 1, "ab": 2)", R"("ab")")), Code::kInput, "merges[0]");
  expect_refused(file(bpe(R"("a": 0, "b": 1, "ab": 2)", "7")), Code::kInput, "merges[0]");
}

TEST(TokenizerLoad, Row49DuplicateIds) {
  expect_refused(file(bpe(R"("a": 0, "b": 0)")), Code::kInput, "with id 0");
  expect_refused(file(bpe(R"("a": 0, "a": 1)")), Code::kInput, "a");
}

TEST(TokenizerLoad, Row49HolesInIdsAreAllowed) {
  const Loaded t = load(file(bpe(R"("a": 0, "b": 1000)")));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ((*t)->n_vocab(), 1001);
  EXPECT_EQ(*(*t)->encode("ab"), (std::vector<int32_t>{0, 1000}));
  EXPECT_EQ((*t)->token(500), "");
  EXPECT_EQ((*t)->decode(std::vector<int32_t>{0, 500, 1000}), "a b");
}

TEST(TokenizerLoad, Row49IdsOutOfRange) {
  expect_refused(file(bpe(R"("a": 2147483648)")), Code::kInput, "2147483648");
  expect_refused(file(bpe(R"("a": -1)")), Code::kInput, "-1");
  expect_refused(file(bpe(R"("a": 18446744073709551615)")), Code::kInput, "model.vocab");
  expect_refused(file(bpe(R"("a": 1.5)")), Code::kInput, "model.vocab");
  expect_refused(file(bpe(R"("a": "0")")), Code::kInput, "a string");
  expect_refused(file(kPlain, R"("added_tokens": [{"id": 2147483648, "content": "x"}])"),
                 Code::kInput, "added_tokens[0].id");
}

// As the package numbers them (asked: 0.23.3): the vocabulary's id, or the next behind it.
TEST(TokenizerLoad, IdsOfAddedTokensAreThePackages) {
  const Loaded t = load(file(kPlain, R"("added_tokens": [{"id": 9, "content": "a"},
      {"id": 1, "content": "x"}, {"id": 1900, "content": "y"}])"));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ(*(*t)->encode("axyb"), (std::vector<int32_t>{0, 3, 4, 1}));
  EXPECT_EQ((*t)->n_vocab(), 5);
  expect_refused(
      file(kPlain, R"("added_tokens": [{"id": 5, "content": "x"}, {"id": 6, "content": "x"}])"),
      Code::kInput, "added_tokens[1]");
}

TEST(TokenizerLoad, AddedTokensOfAVocabularyWithHolesKeepTheirIds) {
  const std::string holes = bpe(R"("a": 0, "b": 9)");
  const Loaded t = load(file(holes, R"("added_tokens": [{"id": 12, "content": "x"},
      {"id": 3, "content": "y"}])"));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ(*(*t)->encode("xyb"), (std::vector<int32_t>{12, 3, 9}));
  expect_refused(file(holes, R"("added_tokens": [{"id": 9, "content": "x"}])"), Code::kInput,
                 "'b'");
}

// Row 50.
TEST(TokenizerLoad, Row50EmptyAddedToken) {
  expect_refused(file(kPlain, R"("added_tokens": [{"id": 3, "content": ""}])"), Code::kInput,
                 "empty");
}

TEST(TokenizerLoad, Row50AddedTokenOfAMegabyte) {
  const std::string content(1 << 20, 'x');
  expect_refused(file(kPlain, R"("added_tokens": [{"id": 3, "content": ")" + content + "\"}]"),
                 Code::kInput, "1048576");
}

TEST(TokenizerLoad, Row50AMillionAddedTokens) {
  std::string list;
  for (int i = 0; i < 1'000'000; ++i)
    list += (i == 0 ? "" : ",") + fmt::format(R"({{"id": {}, "content": "<{}>"}})", i + 3, i);
  const Loaded t = load(file(kPlain, R"("added_tokens": [)" + list + "]"));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ(*(*t)->encode("a<999999><7>b<"), (std::vector<int32_t>{0, 1000002, 10, 1}));
}

// Row 51: what is no byte token is a token like any other, and never an index.
TEST(TokenizerLoad, Row51StrangeByteTokensAreText) {
  const std::string model =
      R"({"type": "BPE", "byte_fallback": true, "unk_token": "u", "merges": [], "vocab":
          {"u": 0, "<0x-1>": 1, "<0x100>": 2, "<0xZZ>": 3, "<0x41>": 4, "<0x>": 5}})";
  const Loaded t = load(
      file(model, R"("decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]})"));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ((*t)->decode(std::vector<int32_t>{1, 2, 3, 4, 5}), "<0x-1><0x100><0xZZ>A<0x>");
  EXPECT_EQ(*(*t)->encode("AB\xFF"), (std::vector<int32_t>{4, 0, 0}));
}

// Row 52.
std::string split(const std::string& pattern) {
  return R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" + pattern +
         R"("}, "behavior": "Isolated", "invert": false})";
}

TEST(TokenizerLoad, Row52PatternOfAMegabyte) {
  expect_refused(file(kPlain, split(std::string(1 << 20, 'x'))), Code::kInput, "1048576");
}

TEST(TokenizerLoad, Row52UnknownClassAndBrokenPattern) {
  expect_refused(file(kPlain, split(R"(\\p{NoSuchThing}+)")), Code::kInput, "NoSuchThing");
  expect_refused(file(kPlain, split("(a")), Code::kInput, "pre_tokenizer.pattern");
  expect_refused(file(kPlain, split(R"(\\h+)")), Code::kUnsupported, R"(\h)");
}

TEST(TokenizerLoad, Row52UnknownPartsAreRefusedByName) {
  const auto part = [](const std::string& where, const std::string& type) {
    return file(kPlain, "\"" + where + R"(": {"type": ")" + type + "\"}");
  };
  expect_refused(part("normalizer", "Nmt2"), Code::kUnsupported, "'Nmt2'");
  expect_refused(part("pre_tokenizer", "UnicodeScripts"), Code::kUnsupported, "'UnicodeScripts'");
  expect_refused(part("post_processor", "Other"), Code::kUnsupported, "'Other'");
  expect_refused(part("decoder", "CTC"), Code::kUnsupported, "'CTC'");
  expect_refused(file(R"({"type": "Wordy"})"), Code::kUnsupported, "'Wordy'");
  expect_refused(file(kPlain, R"("normalizer": {"type": "NFC", "locale": "tr"})"),
                 Code::kUnsupported, "'locale'");
  expect_refused(file(kPlain, R"("surprise": {})"), Code::kUnsupported, "'surprise'");
  expect_refused(file(kPlain, R"("normalizer": {"type": "Sequence", "normalizers":
      [{"type": "NFC"}, {"type": "Upper"}]})"),
                 Code::kUnsupported, "normalizers[1]");
}

TEST(TokenizerLoad, NestedSequencesAreBounded) {
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 40; ++i) nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  expect_refused(file(kPlain, "\"normalizer\": " + nested), Code::kInput, "nested");
}

// Row 53.
std::string unigram(const std::string& vocab) {
  return file(R"({"type": "Unigram", "unk_id": 0, "vocab": [)" + vocab + "]}");
}

TEST(TokenizerLoad, Row53UnigramScores) {
  expect_refused(unigram(R"(["u", 0], ["a", NaN])"), Code::kInput, "");
  expect_refused(unigram(R"(["u", 0], ["a", 1e999])"), Code::kInput, "");
  expect_refused(unigram(R"(["u", 0], ["a", "nan"])"), Code::kInput, "model.vocab[1]");
  expect_refused(unigram(R"(["u", 0], ["a"])"), Code::kInput, "model.vocab[1]");
  expect_refused(unigram(R"(["u", 0], ["a", -1, -2])"), Code::kInput, "model.vocab[1]");
  expect_refused(unigram(R"(["u", 0], ["a", -1], ["a", -2])"), Code::kInput, "'a'");
  expect_refused(file(R"({"type": "Unigram", "unk_id": 7, "vocab": [["u", 0]]})"), Code::kInput,
                 "unk_id");
}

// The example in the package's own documentation of Unigram::encode.
TEST(TokenizerLoad, UnigramTakesTheBestPath) {
  const Loaded t = load(unigram(R"(["<unk>", 0], ["a", 0], ["b", 0], ["c", 0], ["d", 0],
      ["cd", 1], ["ab", 2], ["abc", 5], ["abcd", 10])"));
  ASSERT_TRUE(t) << t.error().text;
  EXPECT_EQ(*(*t)->encode("abcdacdxx"), (std::vector<int32_t>{8, 1, 5, 0}));
}

TEST(TokenizerLoad, MissingAndMistypedParts) {
  expect_refused("{}", Code::kInput, "model");
  expect_refused("[]", Code::kInput, "an object");
  expect_refused(file(R"({"type": "BPE", "vocab": [], "merges": []})"), Code::kInput,
                 "model.vocab");
  expect_refused(file(R"({"type": "BPE", "vocab": {}})"), Code::kInput, "model.merges");
  expect_refused(file(R"({"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1})"),
                 Code::kUnsupported, "dropout");
  expect_refused(file(kPlain, R"("added_tokens": {})"), Code::kInput, "added_tokens");
  expect_refused(file(kPlain, R"("normalizer": {"type": "Strip", "strip_left": 1})"), Code::kInput,
                 "strip_left");
  expect_refused(file(kPlain, R"("post_processor": {"type": "TemplateProcessing", "single": [],
      "pair": [], "special_tokens": {}})"),
                 Code::kInput, "texts would be lost");
  EXPECT_FALSE(Tokenizer::from_file("/nonexistent/tokenizer.json"));
}

// What a model does with a character that it does not know, as the package does.
TEST(TokenizerLoad, UnknownCharacters) {
  const auto encode = [](const std::string& model, std::string_view text) {
    const Loaded t = load(file(model));
    EXPECT_TRUE(t) << (t ? "" : t.error().text);
    return (*t)->encode(text);
  };
  EXPECT_EQ(*encode(kPlain, "axb"), (std::vector<int32_t>{2}));  // dropped, then merged
  const std::string with_unk =
      R"({"type": "BPE", "unk_token": "u", "vocab": {"u": 0, "a": 1}, "merges": [], "fuse_unk": )";
  EXPECT_EQ(*encode(with_unk + "false}", "axya"), (std::vector<int32_t>{1, 0, 0, 1}));
  EXPECT_EQ(*encode(with_unk + "true}", "axya"), (std::vector<int32_t>{1, 0, 1}));
  const auto missing =
      encode(R"({"type": "BPE", "unk_token": "nope", "vocab": {"a": 1}, "merges": []})", "ax");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().text.find("'nope'"), std::string::npos);
}

}  // namespace
}  // namespace sextant
