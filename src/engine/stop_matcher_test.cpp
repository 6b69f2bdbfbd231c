#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

namespace sextant {
namespace {

using Pieces = std::vector<std::string>;

// The pieces as they are shown; a match shows as "|".
Pieces shown(const Pieces& stops, const Pieces& pieces) {
  StopMatcher matcher(stops);
  Pieces out;
  for (const std::string& piece : pieces) {
    out.push_back(matcher.push(piece));
    if (matcher.matched()) {
      out.push_back("|");
      return out;
    }
  }
  out.push_back(matcher.finish());
  return out;
}

std::string joined(const Pieces& stops, const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : shown(stops, pieces)) text += piece;
  return text;
}

// C109: "beta" is never shown.
TEST(StopMatcher, StopOverTwoTokens) {
  EXPECT_EQ(shown({"beta gamma"}, {"alpha", " beta", " gamma", " delta"}),
            (Pieces{"alpha", " ", "", "|"}));
}

// C110: "yy" is never shown.
TEST(StopMatcher, StopInTheMiddleOfAToken) {
  EXPECT_EQ(shown({"END"}, {"xxENDyy"}), (Pieces{"xx", "|"}));
}

TEST(StopMatcher, HeldTextComesWhenItCannotBecomeAStop) {
  EXPECT_EQ(shown({"beta gamma"}, {"beta", " delta"}), (Pieces{"", "beta delta", ""}));
  EXPECT_EQ(shown({"beta gamma"}, {"x beta"}), (Pieces{"x ", "beta"}));
  EXPECT_EQ(shown({"aab"}, {"a", "a", "a", "b"}), (Pieces{"", "", "a", "", "|"}));
}

TEST(StopMatcher, TheFirstCompleteStopWins) {
  EXPECT_EQ(joined({"abcd", "bc"}, {"abcd"}), "a|");
  EXPECT_EQ(joined({"c", "abc"}, {"xabc"}), "x|");  // both end at the same byte: the longer one
}

TEST(StopMatcher, NoStopsAndEmptyStopsHoldNothing) {
  EXPECT_EQ(shown({}, {"a", "b"}), (Pieces{"a", "b", ""}));
  EXPECT_EQ(shown({""}, {"a"}), (Pieces{"a", ""}));
}

TEST(StopMatcher, CharactersStayWhole) {
  EXPECT_EQ(shown({"é!"}, {"caf", "é"}), (Pieces{"caf", "", "é"}));
  EXPECT_EQ(shown({"ê"}, {"é"}), (Pieces{"é", ""}));  // same first byte, whole characters
}

RC_GTEST_PROP(StopMatcher, CuttingDoesNotMatter, ()) {
  const auto letter = [] { return rc::gen::elementOf(std::string("aab")); };
  const auto text = *rc::gen::container<std::string>(letter());
  const auto stops = *rc::gen::container<Pieces>(rc::gen::container<std::string>(letter()));
  const auto n_cut = *rc::gen::inRange<size_t>(1, 5);
  Pieces whole = {text};
  Pieces cut;
  for (size_t i = 0; i < text.size(); i += n_cut) cut.push_back(text.substr(i, n_cut));
  RC_ASSERT(joined(stops, whole) == joined(stops, cut));
}

}  // namespace
}  // namespace sextant
