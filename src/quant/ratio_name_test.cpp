// Ratios by name, by hand.
#include "quant/ratio_name.h"

#include <limits>

#include <gtest/gtest.h>

namespace sextant {
namespace {

TEST(RatioName, RatiosAreNamedWithinTwoPercent) {
  EXPECT_EQ(ratio_name(1.01, {}), "");
  EXPECT_EQ(ratio_name(1.255, {}), "1.25");
  EXPECT_EQ(ratio_name(0.8, {}), "1/1.25");
  EXPECT_EQ(ratio_name(0.2503, {}), "1/4");
  EXPECT_EQ(ratio_name(2.1, {}), "");
  EXPECT_EQ(ratio_name(2688, {}), "2688");
  EXPECT_EQ(ratio_name(0.25, 0.5F), "1/4");  // no multiplier is that large
  EXPECT_EQ(ratio_name(1e-8, 1e-4F), "g^2");
  EXPECT_EQ(ratio_name(1e8, 1e-4F), "1/g^2");
  EXPECT_EQ(ratio_name(std::numeric_limits<double>::infinity(), {}), "");
  EXPECT_EQ(ratio_name(0, {}), "");
}

}  // namespace
}  // namespace sextant
