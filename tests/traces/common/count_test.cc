// Whole numbers and factors as people write them.
#include "traces/common/count.h"

#include <gtest/gtest.h>

#include "traces/common/error.h"
#include "traces/common/factor.h"

namespace stallcast {
namespace {

TEST(CountTest, ReadsDecimalAndBinaryThousands) {
  EXPECT_EQ(ParseCount("32768"), 32768);
  EXPECT_EQ(ParseCount("32K"), 32768);
  EXPECT_EQ(ParseCount("1M"), 1 << 20);
  EXPECT_EQ(ParseCount("010"), 10);
  EXPECT_EQ(ParseCount("-3"), -3);
  for (const char* wrong : {"", "K", "0x10", "1.5K", "4GB", "1 K", "99999999999999999999",
                            "9223372036854775807K", "four"}) {
    EXPECT_EQ(ParseCount(wrong), std::nullopt) << wrong;
  }
}

TEST(FactorTest, IsOfTheCurrentValue) {
  EXPECT_EQ(ParseFactor("2x"), 2);
  EXPECT_EQ(ParseFactor("0.5x"), 0.5);
  for (const char* wrong : {"", "x", "0x", "-2x", "2xx", "1e400x", "nanx", "infx", "2"}) {
    EXPECT_EQ(ParseFactor(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseQuantityOrFactor("2x", Dimension::kRate, 50e9, "link"), 100e9);
  EXPECT_EQ(ParseQuantityOrFactor("60GB/s", Dimension::kRate, 50e9, "link"), 60e9);
  EXPECT_THROW(ParseQuantityOrFactor("1e308x", Dimension::kRate, 50e9, "link"), Error);
}

}  // namespace
}  // namespace stallcast
