// The matchers alone. Expected values of the shell matcher are those of Python's
// fnmatch.fnmatchcase.
#include "checkpoint/patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sextant {
namespace {

using ::testing::ElementsAre;

TEST(Patterns, ShellMatchIsPythonsFnmatch) {
  const struct {
    const char* pattern;
    const char* name;
    bool matches;
  } kCases[] = {
      {"lm_head", "lm_head", true},
      {"lm_head", "lm_head2", false},
      {"lm_head", "model.lm_head", false},
      {"model.layers.*.self_attn*", "model.layers.0.self_attn.q_proj", true},
      {"model.layers.*.self_attn*", "model.layers.0.mlp.q_proj", false},
      {"model.layers.1", "model.layers.10", false},
      {"model.layers.1*", "model.layers.10.x", true},
      {"*", "", true},
      {"", "", true},
      {"", "a", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"*a*b", "xaxxb", true},
      {"*a*b", "xaxxbc", false},
      {"a*b*c", "abbc", true},
      {"a*b*c", "acb", false},
      {"**", "ab", true},
      {"[ab]x", "bx", true},
      {"[ab]x", "cx", false},
      {"[!ab]x", "cx", true},
      {"[!ab]x", "ax", false},
      {"layers.[0-3].w", "layers.2.w", true},
      {"layers.[0-3].w", "layers.4.w", false},
      {"[]]x", "]x", true},
      {"[!]]x", "]x", false},
      {"[x", "[x", true},
      {"[x", "x", false},
      {"[a-]x", "-x", true},
      {"Linear", "linear", false},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(shell_match(c.pattern, c.name), c.matches) << c.pattern << " " << c.name;
}

TEST(Patterns, ShellMatchIsNotExponential) {
  const std::string name(4000, 'a');
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "a*";
  EXPECT_FALSE(shell_match(pattern + "b", name));
}

std::vector<size_t> matched(std::string_view pattern, PatternStyle style, bool targets,
                            const std::vector<ModuleName>& modules) {
  auto matcher = PatternMatcher::compile(pattern, style, targets);
  EXPECT_TRUE(matcher);
  auto result = matcher->match(modules);
  EXPECT_TRUE(result);
  return *result;
}

TEST(Patterns, StylesMatchAsTheirProducersDo) {
  const std::vector<ModuleName> modules = {{"lm_head", "Linear"},
                                           {"model.embed_tokens", "Embedding"},
                                           {"model.layers.0.mlp.up_proj", "Linear"},
                                           {"model.layers.0.self_attn.q_proj", "Linear"},
                                           {"model.layers.10.mlp.up_proj", "Linear"}};
  EXPECT_THAT(matched("Linear", PatternStyle::kExact, true, modules), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(matched("linear", PatternStyle::kExact, true, modules), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(matched("Linear", PatternStyle::kExact, false, modules), ElementsAre());
  EXPECT_THAT(matched("lm_head", PatternStyle::kExact, false, modules), ElementsAre(0));
  EXPECT_THAT(matched("re:model\\.layers\\.1", PatternStyle::kExact, false, modules),
              ElementsAre(4));
  EXPECT_THAT(matched("re:.*up_proj$", PatternStyle::kExact, false, modules), ElementsAre(2, 4));
  EXPECT_THAT(matched("re:layers", PatternStyle::kExact, false, modules), ElementsAre());
  EXPECT_THAT(matched("model.layers.0*", PatternStyle::kShell, false, modules), ElementsAre(2, 3));
  EXPECT_THAT(matched("model.layers.0", PatternStyle::kShell, false, modules), ElementsAre());
  EXPECT_THAT(matched("model.layers.*.self_attn", PatternStyle::kPrefix, false, modules),
              ElementsAre(3));
  EXPECT_THAT(matched("up_proj", PatternStyle::kPrefix, false, modules), ElementsAre(2, 4));
  EXPECT_THAT(matched("model.layers.1", PatternStyle::kPrefix, false, modules), ElementsAre());
}

TEST(Patterns, TooLongAndMalformedPatternsAreRefused) {
  EXPECT_FALSE(PatternMatcher::compile(std::string(70'000, 'a'), PatternStyle::kShell, false));
  const auto bad = PatternMatcher::compile("re:[", PatternStyle::kExact, false);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().text, ::testing::HasSubstr("re:["));
}

}  // namespace
}  // namespace sextant
