// Which of several runs is kept: undisturbed before quick.
#include "capture/gpu/best_run.h"

#include <gtest/gtest.h>

namespace stallcast::capture {
namespace {

using namespace std::chrono_literals;
using Run = std::vector<kernels::RanStep>;

constexpr double kQuiet = 1.43, kBusy = 2.3;
const Run kSlow = {{140us, kQuiet}, {140us, kQuiet}}, kQuick = {{100us, kQuiet}, {130us, kQuiet}};
const Run kDisturbed = {{90us, kQuiet}, {90us, kBusy}};

class BestRunTest : public testing::Test {
 protected:
  kernels::CoreLoadSampler seen;
};

TEST_F(BestRunTest, TheQuickestOfThoseThatNobodyDisturbed) {
  BestRun best(seen, 4);
  EXPECT_TRUE(best.Add(kSlow));
  EXPECT_TRUE(best.Add(kQuick));
  EXPECT_FALSE(best.Add(kDisturbed));
  EXPECT_TRUE(best.WantsMore());
  EXPECT_FALSE(best.Add(kSlow));
  EXPECT_FALSE(best.WantsMore());
  EXPECT_EQ(best.disturbed(), 0);
}

TEST_F(BestRunTest, ADisturbedOneOnlyUntilThereIsABetter) {
  BestRun best(seen, 1);
  EXPECT_TRUE(best.WantsMore());
  EXPECT_TRUE(best.Add(kDisturbed));
  EXPECT_EQ(best.disturbed(), 1);
  EXPECT_TRUE(best.WantsMore());
  EXPECT_TRUE(best.Add(kSlow));
  EXPECT_EQ(best.disturbed(), 0);
  EXPECT_FALSE(best.WantsMore());
}

TEST_F(BestRunTest, ThreeTimesAsManyAreEnough) {
  BestRun best(seen, 2);
  best.Add(kDisturbed);
  for (int run = 1; run < 6; ++run) {
    EXPECT_TRUE(best.WantsMore());
    EXPECT_FALSE(best.Add(kDisturbed));
  }
  EXPECT_FALSE(best.WantsMore());
  EXPECT_EQ(best.disturbed(), 1);
}

}  // namespace
}  // namespace stallcast::capture
