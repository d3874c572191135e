#include "traces/common/error.h"

#include <gtest/gtest.h>

namespace stallcast {
namespace {

TEST(ErrorTest, IsOneLineWithPlaceAndRemedy) {
  const Error error("no such\nlayer \x1b[2J9", "a\r.kvt", "choose 0 to 7");
  EXPECT_STREQ(error.what(), "a .kvt: no such layer  [2J9; choose 0 to 7");
  EXPECT_FALSE(error.usage());
  EXPECT_TRUE(UsageError("x", "", "").usage());
  EXPECT_STREQ(UsageError("x", "", "").what(), "x");
}

}  // namespace
}  // namespace stallcast
