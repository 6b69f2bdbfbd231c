// JSON: what is accepted, what is refused and where the message points, and what we write.
#include "io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <rapidcheck.h>

#include <cmath>
#include <functional>
#include <limits>

#include "io/json_fault.h"
#include "io/ordered_json.h"
#include "io/test_files.h"

namespace sextant {
namespace {

using testing::HasSubstr;

std::string fault_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto value = parse_json(text, "x.json", limits);
  if (value) return "accepted";
  EXPECT_EQ(value.error().code, Code::kInput);
  EXPECT_THAT(value.error().text, testing::StartsWith("x.json: "));
  return value.error().text;
}

// Runs f with a stack of the given size.
void on_small_stack(size_t stack_bytes, const std::function<void()>& f) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
  pthread_t thread;
  const auto run = [](void* p) -> void* {
    (*static_cast<const std::function<void()>*>(p))();
    return nullptr;
  };
  ASSERT_EQ(
      pthread_create(&thread, &attributes, run, const_cast<void*>(static_cast<const void*>(&f))),
      0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Json, EveryKindOfValue) {
  const auto value = parse_json(
      R"( {"n":null,"t":true,"f":false,"i":-3,"u":18446744073709551615,"d":2.5e-1,"s":"a\u00e9\n",)"
      R"("a":[1,[],{}],"o":{"k":"v"}} )",
      "x");
  ASSERT_TRUE(value.has_value()) << value.error().text;
  EXPECT_TRUE(value->find("n")->is_null());
  EXPECT_TRUE(value->find("t")->as_bool());
  EXPECT_FALSE(value->find("f")->as_bool());
  EXPECT_EQ(value->find("i")->as_int(), -3);
  EXPECT_EQ(value->find("u")->kind(), JsonValue::Kind::kUint);
  EXPECT_EQ(value->find("u")->as_double(), 0x1p64);
  EXPECT_EQ(value->find("d")->as_double(), 0.25);
  EXPECT_EQ(value->find("s")->as_string(), "a\xC3\xA9\n");
  EXPECT_EQ(value->find("a")->array().size(), 3U);
  EXPECT_EQ(value->find("o")->find("k")->as_string(), "v");
  EXPECT_EQ(value->find("absent"), nullptr);
  EXPECT_EQ(value->find("s")->find("k"), nullptr);
  EXPECT_EQ(value->members().front().first, "n");
  EXPECT_EQ(value->members().back().first, "o");
  EXPECT_EQ(dump_json(value->to_json()),
            R"({"n":null,"t":true,"f":false,"i":-3,"u":18446744073709551615,"d":0.25,"s":"aé\n",)"
            R"("a":[1,[],{}],"o":{"k":"v"}})");
}

TEST(Json, ValuesAreSmall) { EXPECT_LE(sizeof(JsonValue), 40U); }

TEST(Json, Row48NanInfinityCommentsTrailingCommasAndMarkGiveLineAndColumn) {
  EXPECT_EQ(
      fault_of("{\n  \"a\": NaN\n}"),
      "x.json: line 2, column 8: expected a value, found 'NaN' (JSON has no NaN or infinity)");
  EXPECT_THAT(fault_of("[1, -Infinity]"), HasSubstr("line 1, column 5: expected a number, found "
                                                    "'-Infinity' (JSON has no NaN or infinity)"));
  EXPECT_THAT(fault_of("[Infinity]"), HasSubstr("line 1, column 2"));
  EXPECT_THAT(fault_of("{\n// why\n}"), HasSubstr("line 2, column 1"));
  EXPECT_THAT(fault_of("{\n// why\n}"), HasSubstr("JSON has no comments"));
  EXPECT_THAT(fault_of("[1 /* one */]"), HasSubstr("JSON has no comments"));
  EXPECT_EQ(fault_of("{\"é\": [1,2,\n3,]}"),
            "x.json: line 2, column 2: expected another entry after ',', found ']'");
  EXPECT_THAT(fault_of("{\"a\":1,}"), HasSubstr("line 1, column 7: expected another entry"));
  EXPECT_EQ(fault_of("\xEF\xBB\xBF{}"),
            "x.json: line 1, column 1: expected JSON, found a byte-order mark: remove it");
}

TEST(Json, RefusesWhatIsNoJson) {
  struct Row {
    std::string_view text;
    std::string_view says;
  };
  const Row rows[] = {
      {"", "expected JSON, found nothing"},
      {" \n ", "expected JSON, found nothing"},
      {"{} x", "line 1, column 4: expected the end after the JSON value, found 'x'"},
      {"[1][2]", "line 1, column 4: expected the end"},
      {"[1 2]", "line 1, column 4: expected ',' or ']', found '2'"},
      {"{\"a\" 1}", "line 1, column 6: expected ':' after a key, found '1'"},
      {"{a:1}", "line 1, column 2: expected a key in double quotes, found 'a'"},
      {"{'a':1}", "expected a key in double quotes"},
      {"['a']", "single quote"},
      {"[tru]", "expected a value, found 'tru'"},
      {"[nullx]", "expected a value, found 'nullx'"},
      {"[01]", "expected a number, found '01'"},
      {"[1.]", "expected a number, found '1.'"},
      {"[.5]", "expected a value, found '.5'"},
      {"[+1]", "expected a value, found '+1'"},
      {"[1e]", "expected a number, found '1e'"},
      {"[0x10]", "expected a number, found '0x10'"},
      {"[1e400]", "expected a number within the range of a double, found '1e400'"},
      {"[-1e400]", "within the range of a double"},
      {"[\"a\tb\"]", "line 1, column 4: expected an escaped control character"},
      {"[\"\\x41\"]", "expected a JSON escape after a backslash"},
      {"[\"\\u12g4\"]", "expected four hexadecimal digits"},
      {"[\"\\ud800\"]", "found half of one"},
      {"[\"\\udc00\"]", "found half of one"},
      {"[\"\\ud800\\u0041\"]", "found half of one"},
      {"[\"abc", "line 1, column 2: expected a closing quote"},
      {"[1", "expected ',' or ']', found the end of the text"},
      {"{\"a\":", "expected a value, found the end of the text"},
      {"[\"\xFF\"]", "line 1, column 3: expected UTF-8, found the invalid byte 0xff"},
      {"[\"\xC0\xAF\"]", "expected UTF-8, found the invalid byte 0xc0"},
      {"[\"\xED\xA0\x80\"]", "expected UTF-8, found the invalid byte 0xed"},
      {"[\"\x80\"]", "expected UTF-8, found the invalid byte 0x80"},
      {"[\"\xF4\x90\x80\x80\"]", "expected UTF-8, found the invalid byte 0xf4"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"},
      {"<!DOCTYPE html>\n<html>", "an HTML page"},
  };
  for (const Row& row : rows) EXPECT_THAT(fault_of(row.text), HasSubstr(row.says)) << row.text;
}

TEST(Json, DuplicateKeysAreRefusedNamingTheKey) {
  EXPECT_EQ(fault_of(R"({"a":1,"b":{"c":1,"d":2,"c":3}})"),
            "x.json: expected every key of an object once, found 'c' twice");
  // The same key in two spellings, and the same key in two objects.
  EXPECT_THAT(fault_of(R"({"a":1,"\u0061":2})"), HasSubstr("'a' twice"));
  EXPECT_EQ(fault_of(R"([{"a":1},{"a":2}])"), "accepted");
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += fmt::format("\"token-{}\":{},", i, i);
  EXPECT_EQ(fault_of(many + "\"x\":0}"), "accepted");
  EXPECT_THAT(fault_of(many + "\"token-777\":0,\"token-3\":0}"), HasSubstr("'token-777' twice"));
}

TEST(Json, IntegersBeyond64BitsBecomeDoubles) {
  // tokenizer_config.json files hold int(1e30) written out.
  const auto value = parse_json(
      "{\"model_max_length\": 1000000000000000019884624838656, \"a\": [-9223372036854775809, "
      "18446744073709551616, 9223372036854775807, \"1000000000000000019884624838656\"]}",
      "x");
  ASSERT_TRUE(value.has_value()) << value.error().text;
  EXPECT_EQ(value->find("model_max_length")->kind(), JsonValue::Kind::kDouble);
  EXPECT_EQ(value->find("model_max_length")->as_double(), 1e30);
  const auto& a = value->find("a")->array();
  EXPECT_EQ(a[0].as_double(), -0x1p63);
  EXPECT_EQ(a[1].as_double(), 0x1p64);
  EXPECT_EQ(a[2].as_int(), INT64_MAX);
  EXPECT_EQ(a[3].as_string(), "1000000000000000019884624838656");
}

TEST(Json, TooDeepIsRefusedOnASmallStack) {
  on_small_stack(256 << 10, [] {
    for (const int depth : {130, 3000, 100'000, 1'000'000}) {
      std::string text(static_cast<size_t>(depth), '[');
      EXPECT_THAT(fault_of(text), HasSubstr("too deep"));
      text += std::string(static_cast<size_t>(depth), ']');
      EXPECT_THAT(fault_of(text), HasSubstr("too deep: expected at most 128"));
      std::string objects;
      for (int i = 0; i < depth; ++i) objects += "{\"a\":";
      EXPECT_THAT(fault_of(objects), HasSubstr("too deep"));
    }
  });
}

TEST(Json, TheDeepestAllowedIsReadCopiedAndWritten) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kStackBytes = 1 << 20;  // its frames are several times larger
#else
  constexpr size_t kStackBytes = 256 << 10;
#endif
  on_small_stack(kStackBytes, [] {
    const std::string text = std::string(128, '[') + std::string(128, ']');
    const auto value = parse_json(text, "x");
    ASSERT_TRUE(value.has_value()) << value.error().text;
    const JsonValue copy = *value;
    EXPECT_EQ(dump_json(copy.to_json()), text);
  });
  EXPECT_EQ(fault_of("[[1]]", {.max_depth = 2}), "accepted");
  EXPECT_THAT(fault_of("[[[1]]]", {.max_depth = 2}), HasSubstr("line 1, column 3: too deep"));
}

TEST(Json, SizeLimit) {
  EXPECT_EQ(fault_of("[1]", {.max_bytes = 3}), "accepted");
  EXPECT_THAT(fault_of("[1] ", {.max_bytes = 3}),
              HasSubstr("too large: expected at most 3 bytes of JSON, found 4"));
  const TempDir dir;
  const auto path = dir.file("big.json", "[1,2,3]");
  EXPECT_THAT(error_of(read_json(path, {.max_bytes = 6})).text,
              HasSubstr("expected at most 6 bytes, found 7"));
  EXPECT_EQ(read_json(path)->array().size(), 3U);
}

TEST(Json, FilesThatCannotBeRead) {
  const TempDir dir;
  EXPECT_THAT(error_of(read_json(dir.path() / "none.json")).text, HasSubstr("no such file"));
  EXPECT_THAT(error_of(read_json(dir.path())).text, HasSubstr("found a directory"));
}

// The shape of a large tokenizer.json: 150,000 vocabulary entries and 300,000 merges as pairs.
TEST(Json, ALargeVocabularyParsesInWellUnderASecond) {
  std::string text = "{\"vocab\":{";
  for (int i = 0; i < 150'000; ++i) text += fmt::format("{}\"tok{:x}\":{}", i ? "," : "", i, i);
  text += "},\"merges\":[";
  for (int i = 0; i < 300'000; ++i)
    text += fmt::format("{}[\"ab{:x}\",\"c{:x}\"]", i ? "," : "", i, i);
  text += "]}";
  const double start = cpu_seconds();
  const auto value = parse_json(text, "tokenizer.json");
  const double seconds = cpu_seconds() - start;
  ASSERT_TRUE(value.has_value()) << value.error().text;
  EXPECT_EQ(value->find("vocab")->members().size(), 150'000U);
  EXPECT_EQ(value->find("merges")->array()[299'999].array()[1].as_string(), "c493df");
  RecordProperty("seconds", std::to_string(seconds));
#if !defined(__SANITIZE_ADDRESS__) && defined(__OPTIMIZE__)
  EXPECT_LT(seconds, 1.0);
#endif
}

// Keys chosen to collide or to share long beginnings must not make finding duplicates slow.
TEST(Json, HostileKeysStayFast) {
  std::string text = "{";
  const std::string prefix(200, 'k');
  for (int i = 0; i < 50'000; ++i) text += fmt::format("{}\"{}{}\":0", i ? "," : "", prefix, i);
  text += "}";
  const double start = cpu_seconds();
  EXPECT_EQ(fault_of(text), "accepted");
  EXPECT_LT(cpu_seconds() - start, 5.0);
}

TEST(Json, WritingNamesNumbersThatJsonCannotHold) {
  const Json value = {{"x", std::numeric_limits<double>::quiet_NaN()},
                      {"y", {std::numeric_limits<double>::infinity(), -HUGE_VAL, 1.5}}};
  EXPECT_EQ(dump_json(value), R"({"x":"nan","y":["inf","-inf",1.5]})");
  EXPECT_EQ(dump_json(Json(std::nan(""))), R"("nan")");
  EXPECT_EQ(dump_json(Json{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

TEST(Json, WritingNeverThrowsOnBytesThatAreNotUtf8) {
  EXPECT_EQ(dump_json(Json("a\xFF"
                           "b")),
            "\"a\xEF\xBF\xBD"
            "b\"");
}

// The slow pass that words the message must agree with the parser on what is JSON.
TEST(Json, FaultFinderAgreesWithTheParser) {
  const std::string pieces[] = {
      "{",    "}",   "[",   "]",        ",",    ":",     "\"a\"", "\"b\"",
      "1",    "-2",  "0.5", "1e3",      "true", "null",  " ",     "\n",
      "\"\\", "\\u", "0",   "\xC3\xA9", "\xFF", "1e999", "-",     "99999999999999999999"};
  rc::check([&] {
    std::string text;
    const auto picks = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 24));
    for (const int pick : picks) text += pieces[pick];
    const bool fault = find_json_fault(text, 128).has_value();
    const auto value = parse_json(text, "x");
    const bool duplicate = !value && value.error().text.find("twice") != std::string::npos;
    RC_ASSERT(fault == (!value && !duplicate));
  });
}

}  // namespace
}  // namespace sextant
