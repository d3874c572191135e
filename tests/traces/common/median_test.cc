#include "traces/common/median.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace stallcast {
namespace {

using namespace std::chrono_literals;

TEST(Median, IsTheMiddleValueWhateverTheOrder) {
  EXPECT_EQ(Median(std::vector<double>{9, 1, 4}), 4);
  EXPECT_EQ(Median(std::vector<double>{7}), 7);
  EXPECT_EQ(Median(std::vector<double>{}), 0);
}

// Of two repetitions neither the slower nor the faster stands for both.
TEST(Median, OfAnEvenNumberLiesBetweenTheMiddleTwo) {
  EXPECT_EQ(Median(std::vector<double>{10, 2}), 6);
  EXPECT_EQ(Median(std::vector<double>{100, 3, 1, 4}), 3.5);
  EXPECT_EQ(Median(std::vector<std::chrono::nanoseconds>{30ns, 10ns}), 20ns);
}

TEST(Median, OfNumbersWhoseDifferenceDoesNotFitIsBetweenThem) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Median(std::vector<int64_t>{kMost, kLeast}), -1);
  EXPECT_EQ(Median(std::vector<int64_t>{4001, kLeast}), kLeast / 2 + 2000);
}

TEST(Median, OfWhatNeverEndedIsInfinite) {
  EXPECT_EQ(Median(std::vector<double>{INFINITY, INFINITY}), INFINITY);
  EXPECT_EQ(Median(std::vector<double>{1, INFINITY}), INFINITY);
}

}  // namespace
}  // namespace stallcast
