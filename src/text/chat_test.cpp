// Chat templates against what jinja2 in transformers' environment gives
// (tests/golden/templates/cases.json), and the budgets.
#include "text/chat.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include <gtest/gtest.h>

namespace sextant {
namespace {

std::filesystem::path golden() {
  const char* dir = std::getenv("SEXTANT_GOLDEN");
  return dir != nullptr ? std::filesystem::path(dir)
                        : std::filesystem::path(SX_SOURCE_DIR) / "tests/golden";
}
std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}
Result<std::string> render(std::string_view source, const Json& variables = Json::object(),
                           const TemplateLimits& limits = {}) {
  SX_ASSIGN(const ChatTemplate compiled, ChatTemplate::compile(source, limits));
  return compiled.render(variables, 1768482309);
}
std::string text(std::string_view source, const Json& variables = Json::object()) {
  const Result<std::string> out = render(source, variables);
  return out ? *out : "error: " + out.error().text;
}

TEST(Chat, EveryGoldenCaseRendersAsJinja2) {
  const Json cases = Json::parse(read(golden() / "templates/cases.json"));
  std::map<std::string, ChatTemplate> templates;
  // "now" of the file, 2026-01-15T13:05:09, as seconds since the epoch.
  const int64_t now = 1768482309;
  int n_ok = 0;
  for (const Json& c : cases["cases"]) {
    const std::string name = c["template"];
    if (!templates.contains(name)) {
      auto compiled = ChatTemplate::compile(read(golden() / "templates" / (name + ".jinja")));
      ASSERT_TRUE(compiled) << name << ": " << compiled.error().text;
      templates.emplace(name, std::move(*compiled));
    }
    Json variables = cases["always"];
    variables["messages"] = cases["conversations"][c["conversation"].get<std::string>()];
    variables["add_generation_prompt"] = c.value("add_generation_prompt", false);
    if (c.contains("kwargs")) {
      for (const auto& [key, value] : c["kwargs"].items()) variables[key] = value;
    }
    const Result<std::string> out = templates.at(name).render(variables, now);
    const std::string label = name + " / " + c["conversation"].get<std::string>() + " / " +
                              c.value("kwargs", Json()).dump();
    if (c.contains("error")) {
      ASSERT_FALSE(out) << label << " gave: " << *out;
      if (c["error"]["kind"] == "raise") {
        EXPECT_EQ(out.error().text, c["error"]["message"].get<std::string>()) << label;
      }
    } else if (out) {
      EXPECT_EQ(*out, c["output"].get<std::string>()) << label;
    } else {
      EXPECT_TRUE(c.value("or_error", false)) << label << ": " << out.error().text;
    }
    ++n_ok;
  }
  EXPECT_GT(n_ok, 250);
}

TEST(Chat, WhatJinja2RefusesToParseIsRefused) {
  const Json cases = Json::parse(read(golden() / "templates/cases.json"));
  for (const Json& c : cases["sources"]) {
    const auto compiled = ChatTemplate::compile(c["source"].get<std::string>());
    EXPECT_FALSE(compiled) << c["source"];
    if (!compiled) {
      EXPECT_EQ(compiled.error().code, Code::kInput);
    }
  }
  EXPECT_GT(cases["sources"].size(), 15U);
}

TEST(Chat, RaiseExceptionGivesTheMessageAlone) {
  const auto out = render("{{ raise_exception('System role not supported') }}");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().text, "System role not supported");
}

// jinja2 3.1.6: Environment().from_string(source) of each.
TEST(Chat, UnknownFiltersMatterInBranchesOnlyWhenReached) {
  EXPECT_EQ(text("{% if false %}{{ 1 | from_json }}{% endif %}x"), "x");
  EXPECT_EQ(text("{{ (1 | from_json) if false else 'y' }}"), "y");
  EXPECT_EQ(text("{% if 1 is number or 1 is notest %}z{% endif %}"), "z");
  EXPECT_FALSE(render("{% if true %}{{ 1 | from_json }}{% endif %}"));
  EXPECT_FALSE(ChatTemplate::compile("{{ 1 | from_json }}"));
  EXPECT_FALSE(ChatTemplate::compile(
      "{% if false %}{% for a in b %}{{ a | from_json }}{% endfor %}{% endif %}"));
}

// jinja2 3.1.6: its select_or_reject and map begin with "if seq".
TEST(Chat, SelectAndMapOfNoneAreEmpty) {
  EXPECT_EQ(text("{{ none | selectattr('a') | list }}{{ none | map('upper') | list }}{{ 0 | "
                 "reject('odd') | list }}"),
            "[][][]");
  EXPECT_FALSE(render("{{ 5 | select('odd') | list }}"));
}

TEST(Chat, ErrorsNameTheLine) {
  const auto parse = ChatTemplate::compile("a\nb\n{{ x | nofilter }}");
  ASSERT_FALSE(parse);
  EXPECT_NE(parse.error().text.find("line 3"), std::string::npos) << parse.error().text;
  const auto run = render("a\n{% if true %}\n{{ x.y }}{% endif %}");
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().text.find("line 3"), std::string::npos) << run.error().text;
}

// serving.md 5.5 rows 56 to 58: each must be refused within a second.
TEST(Chat, RunawayTemplatesAreStopped) {
  for (const std::string_view source : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% "
           "endfor %}{% endfor %}{% endfor %}",
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{{ 'x' * 10000000000 }}",
           "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
           "endfor %}{{ ns.s }}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% for i in range(100000) %}{{ 'y' * 100000 }}{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
           "endfor %}",
           "{{ range(1000000) | length }}",
           "{{ 2 ** 2 ** 100000 }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ 'a' | indent(1000000000) }}",
           "{{ 'a' | center(100000000000) }}",
       }) {
    const auto start = std::chrono::steady_clock::now();
    const auto out = render(source);
    [[maybe_unused]] const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_FALSE(out) << source;
#if defined(NDEBUG)
    EXPECT_LT(seconds, 5.0) << source;  // a second on a quiet machine
#endif
  }
}

TEST(Chat, DeeplyNestedSourcesAreRefusedNotOverflowed) {
  for (const std::string_view open : {"(", "[", "{{", "-", "not ", "{% if x %}", "x[", "f("}) {
    std::string source = open[0] == '{' ? "" : "{{ ";
    for (int i = 0; i < 100000; ++i) source += open;
    const auto compiled = ChatTemplate::compile(source);
    EXPECT_FALSE(compiled) << open;
  }
}

TEST(Chat, PythonsScopingOfSetInLoops) {
  EXPECT_EQ(text("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(text("{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ "
                 "ns.x }}"),
            "2");
  EXPECT_EQ(text("{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}"),
            "1112");
}

TEST(Chat, SandboxHidesInternals) {
  EXPECT_EQ(render("{{ ''.__class__.__mro__ }}").error().code, Code::kInput);
  EXPECT_FALSE(render("{{ [].append(1) }}"));
  EXPECT_FALSE(render("{{ {}.update({'a': 1}) }}"));
  EXPECT_FALSE(render("{{ '{0.__class__}'.format('') }}"));
}

// From Python: print(repr(x)) of the same values.
TEST(Chat, FloatsPrintAsInPython) {
  EXPECT_EQ(text("{{ 1e16 }} {{ 123456789.125 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.0 }} {{ 1e22 }} {{ "
                 "1.5e300 }}"),
            "1e+16 123456789.125 1e-05 0.0001 1.0 1e+22 1.5e+300");
}

TEST(Chat, FindsTheTemplateOfAModelDirectory) {
  const auto dir =
      std::filesystem::temp_directory_path() / ("sextant_chat_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  EXPECT_EQ(find_model_chat(dir).value(), std::nullopt);
  std::ofstream(dir / "tokenizer_config.json")
      << R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [)"
      << R"({"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})";
  const auto chat = find_model_chat(dir).value();
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->source, "D");
  EXPECT_EQ(chat->special_tokens["bos_token"], "<s>");
  EXPECT_EQ(chat->special_tokens["eos_token"], "</s>");
  std::ofstream(dir / "chat_template.jinja") << "J";
  EXPECT_EQ(find_model_chat(dir).value()->source, "J");
  std::ofstream(dir / "tokenizer_config.json") << R"({"chat_template": 5})";
  EXPECT_FALSE(find_model_chat(dir));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sextant
