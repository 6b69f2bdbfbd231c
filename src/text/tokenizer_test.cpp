// The tokenizers of tests/golden/tokenizers (and SmolLM2's, where it has been fetched) against what
// the Python package gave; streaming; bounds in time. Broken files are in tokenizer_load_test.cpp.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "io/json.h"
#include "text/pretokenize_known.h"
#include "text/tokenizer.h"

namespace sextant {
namespace {

std::filesystem::path golden() {
  const char* dir = std::getenv("SEXTANT_GOLDEN");
  return dir != nullptr && *dir != 0 ? dir : std::filesystem::path(SX_SOURCE_DIR) / "tests/golden";
}

std::vector<int32_t> ids_of(const JsonValue& list) {
  std::vector<int32_t> ids;
  for (const JsonValue& id : list.array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

TokenizerPtr load(const std::filesystem::path& path) {
  auto tokenizer = Tokenizer::from_file(path);
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().text);
  return tokenizer ? *tokenizer : nullptr;
}

TokenizerPtr parse(const std::string& text) {
  const auto json = parse_json(text, "tokenizer.json");
  EXPECT_TRUE(json) << (json ? "" : json.error().text);
  auto tokenizer = Tokenizer::from_json(*json, "tokenizer.json");
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().text);
  return tokenizer ? *tokenizer : nullptr;
}

// What each id adds, null where it adds nothing yet.
void expect_stream(const TokenizerPtr& tokenizer, const std::vector<int32_t>& ids,
                   const JsonValue& expected, std::string_view text) {
  StreamDecoder stream(tokenizer, false);
  ASSERT_EQ(expected.array().size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const JsonValue& want = expected.array()[i];
    EXPECT_EQ(stream.push(ids[i]), want.is_null() ? "" : want.as_string()) << text << " id " << i;
  }
}

// All cases of a cases.json; returns how many there were.
size_t check_cases(const TokenizerPtr& tokenizer, const JsonValue& cases) {
  for (const JsonValue& c : cases.find("encode")->array()) {
    const std::string& text = c.find("text")->as_string();
    const std::vector<int32_t> want = ids_of(*c.find("ids"));
    const auto ids = tokenizer->encode(text);
    const auto special = tokenizer->encode(text, {.add_special = true});
    EXPECT_TRUE(ids && special);
    if (!ids || !special) continue;
    EXPECT_EQ(*ids, want) << text;
    const JsonValue* with = c.find("ids_special");
    EXPECT_EQ(*special, with != nullptr ? ids_of(*with) : want) << text;
    const JsonValue* decoded = c.find("decoded");
    const std::string plain = decoded != nullptr ? decoded->as_string() : text;
    EXPECT_EQ(tokenizer->decode(want), plain);
    const JsonValue* skip = c.find("decoded_skip");
    EXPECT_EQ(tokenizer->decode(want, true), skip != nullptr ? skip->as_string() : plain);
    if (const JsonValue* stream = c.find("stream")) expect_stream(tokenizer, want, *stream, text);
  }
  size_t n = cases.find("encode")->array().size();
  if (const JsonValue* decode = cases.find("decode")) {
    for (const JsonValue& c : decode->array()) {
      const std::vector<int32_t> ids = ids_of(*c.find("ids"));
      EXPECT_EQ(tokenizer->decode(ids), c.find("decoded")->as_string());
      EXPECT_EQ(tokenizer->decode(ids, true), c.find("decoded_skip")->as_string());
    }
    n += decode->array().size();
  }
  return n;
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, EqualsThePackage) {
  const std::filesystem::path dir = golden() / "tokenizers" / GetParam();
  const TokenizerPtr tokenizer = load(dir);
  ASSERT_NE(tokenizer, nullptr);
  const auto cases = read_json(dir / "cases.json");
  ASSERT_TRUE(cases) << cases.error().text;
  EXPECT_GE(check_cases(tokenizer, *cases), 400U);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTokenizer,
                         testing::Values("gpt2", "llama3", "qwen2", "deepseek-v3", "llama2",
                                         "llama2-metaspace", "gemma", "added-flags"));

// The real tokenizer comes with tools/fetch_smollm2.py, which puts it where models lie.
TEST(Tokenizer, SmolLM2EqualsThePackage) {
  const char* sextant_home = std::getenv("SEXTANT_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path models =
      sextant_home != nullptr
          ? std::filesystem::path(sextant_home)
          : std::filesystem::path(home != nullptr ? home : "/") / ".local/share/sextant";
  const std::filesystem::path path = models / "models/SmolLM2-135M-Instruct";
  if (!std::filesystem::exists(path / "tokenizer.json"))
    GTEST_SKIP() << "no SmolLM2 here: tools/fetch_smollm2.py makes it";
  const TokenizerPtr tokenizer = load(path);
  ASSERT_NE(tokenizer, nullptr);
  const auto cases = read_json(golden() / "smollm2/tokenizer_cases.json");
  ASSERT_TRUE(cases) << cases.error().text;
  check_cases(tokenizer, *cases);
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const TokenizerPtr t = load(golden() / "tokenizers/gpt2");
  ASSERT_NE(t, nullptr);
  // One U+FFFD for each maximal part: a cut sequence is one, each stray byte is one.
  EXPECT_EQ(*t->encode("a\xF0\x9F\x98"
                       "b"),
            *t->encode("a\xEF\xBF\xBD"
                       "b"));
  EXPECT_EQ(*t->encode("\xFF\xC0\xAF"), *t->encode("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
  EXPECT_EQ(*t->encode("\xED\xA0\x80"), *t->encode("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
}

// C106: a character over several tokens arrives once and whole; C107: cut inside, both ways of
// reading it say the same.
TEST(StreamDecoder, NeverSplitsACharacter) {
  for (const char* name : {"gpt2", "llama3", "llama2"}) {
    const TokenizerPtr t = load(golden() / "tokenizers" / name);
    ASSERT_NE(t, nullptr);
    const std::string text = "a\xF0\x9F\xA6\x91\xF0\x9F\x98\x8A z";
    const auto ids = *t->encode(text);
    StreamDecoder stream(t, true);
    std::string all;
    for (const int32_t id : ids) {
      const std::string piece = stream.push(id);
      EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
      all += piece;
    }
    EXPECT_EQ(all + stream.finish(), t->decode(ids, true));
  }
}

TEST(StreamDecoder, CutInsideACharacterEndsAsDecodeDoes) {
  for (const char* name : {"gpt2", "llama2"}) {
    const TokenizerPtr t = load(golden() / "tokenizers" / name);
    ASSERT_NE(t, nullptr);
    const auto ids = *t->encode("x\xF0\x9F\xA6\x91");
    for (size_t n = 0; n <= ids.size(); ++n) {
      const std::span<const int32_t> part(ids.data(), n);
      StreamDecoder stream(t, false);
      std::string all;
      for (const int32_t id : part) all += stream.push(id);
      EXPECT_EQ(all + stream.finish(), t->decode(part)) << name << " " << n;
      EXPECT_EQ(stream.finish(), "");
    }
  }
}

// C121: ids that the tokenizer does not have are nothing, everywhere.
TEST(Tokenizer, IdsWithoutATokenDecodeToNothing) {
  const TokenizerPtr t = load(golden() / "tokenizers/gpt2");
  ASSERT_NE(t, nullptr);
  const auto n = static_cast<int32_t>(t->n_vocab());
  EXPECT_EQ(n, 1501);
  const std::vector<int32_t> ids = {64, n, n + 9, -1, INT32_MAX, INT32_MIN, 65};
  EXPECT_EQ(t->decode(ids), "ab");
  EXPECT_EQ(t->token(n), "");
  EXPECT_FALSE(t->is_special(n));
  StreamDecoder stream(t, false);
  std::string all;
  for (const int32_t id : ids) all += stream.push(id);
  EXPECT_EQ(all, "ab");
}

// C119: only tokenizer.json counts; what tokenizer_config.json calls the class is ignored.
TEST(Tokenizer, IgnoresTheClassNameOfTokenizerConfig) {
  const std::filesystem::path dir =
      std::filesystem::path(testing::TempDir()) / "tokenizer_class_name";
  std::filesystem::create_directories(dir);
  std::filesystem::copy_file(golden() / "tokenizers/gpt2/tokenizer.json", dir / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(dir / "tokenizer_config.json") << R"({"tokenizer_class": "TokenizersBackend"})";
  const TokenizerPtr t = load(dir);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->decode(*t->encode("Hello")), "Hello");
  std::filesystem::remove_all(dir);
}

TEST(Tokenizer, SpecialTokensStayTextOnRequest) {
  const TokenizerPtr t = load(golden() / "tokenizers/llama3");
  ASSERT_NE(t, nullptr);
  const auto parsed = *t->encode("<|eot_id|>");
  ASSERT_EQ(parsed.size(), 1U);
  EXPECT_TRUE(t->is_special(parsed[0]));
  EXPECT_EQ(t->id_of("<|eot_id|>"), parsed[0]);
  EXPECT_EQ(t->token(parsed[0]), "<|eot_id|>");
  const auto plain = *t->encode("<|eot_id|>", {.parse_special = false});
  EXPECT_GT(plain.size(), 1U);
  EXPECT_EQ(t->decode(plain), "<|eot_id|>");
}

double seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A quadratic step anywhere would take minutes for these.
TEST(Tokenizer, LongRunsOfOneCharacterStayFast) {
  for (const char* name :
       {"gpt2", "llama3", "deepseek-v3", "llama2", "llama2-metaspace", "gemma", "added-flags"}) {
    const TokenizerPtr t = load(golden() / "tokenizers" / name);
    ASSERT_NE(t, nullptr);
    for (const char* unit : {"a", " ", "\n", "9", "!", "\xC3\xA9", "\xCC\x81", "ab", " a"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      const double s = seconds([&] { EXPECT_TRUE(t->encode(text)); });
      EXPECT_LT(s, 20.0) << name << " " << unit;
    }
  }
}

// DeepSeek's own files write the line ends of their third pattern out; PCRE2 must not get it, for
// its classes are older: U+2427 is a symbol since Unicode 16.
TEST(Tokenizer, KnownPatternWithLineEndsWrittenOut) {
  const std::string_view escaped =
      R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
      R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  std::string written(escaped);
  for (size_t at = 0; (at = written.find("\\r\\n")) != std::string::npos;)
    written.replace(at, 4, "\r\n");
  ASSERT_NE(find_splitter(escaped), nullptr);
  EXPECT_EQ(find_splitter(written), find_splitter(escaped));
  EXPECT_EQ(find_splitter("[a-z]+"), nullptr);
  CharText text;
  text.assign(" \xE2\x90\xA7!\r\n");
  EXPECT_EQ(find_splitter(written)(text, 0), 5U);
}

// A pattern that is not known goes to PCRE2: a run of any length of one class must not fail.
TEST(Tokenizer, UnknownPatternTakesLongRuns) {
  const TokenizerPtr t = parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, " ": 1, "aa": 2},
      "merges": ["a a"]}, "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
      "invert": false, "pattern": {"Regex": "(?:a|b)+|(?:\\s|x)+?(?!\\S)|\\s+"}}})");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(*t->encode("aaa  a"), (std::vector<int32_t>{2, 0, 1, 1, 0}));
  const auto ids = t->encode(std::string(1'000'000, 'a'));
  ASSERT_TRUE(ids) << ids.error().text;
  EXPECT_EQ(ids->size(), 500'000U);
}

TEST(Tokenizer, BacktrackingPatternReachesALimitAndSaysSo) {
  const TokenizerPtr t = parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1},
      "merges": []}, "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
      "invert": false, "pattern": {"Regex": "(a+a+)+[0-9]"}}})");
  ASSERT_NE(t, nullptr);
  const auto ids = t->encode(std::string(5'000, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, Code::kInput);
  EXPECT_NE(ids.error().text.find("gave up"), std::string::npos) << ids.error().text;
}

}  // namespace
}  // namespace sextant
