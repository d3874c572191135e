// Which runs of a step count: those whose threads had their cores to themselves.
#include "capture/gpu/quiet_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace stallcast::capture {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr double kQuiet = 1.43, kBusy = 2.3;

class QuietStepsTest : public testing::Test {
 protected:
  kernels::CoreLoadSampler seen;
  QuietSteps steps{seen};
};

TEST_F(QuietStepsTest, DisturbedRunsOfAStepDoNotCount) {
  steps.Add({{100us, kQuiet}, {200us, kBusy}});
  steps.Add({{140us, kBusy}, {160us, kQuiet}});
  steps.Add({{104us, kQuiet * 1.1}, {205us, kBusy}});
  EXPECT_THAT(steps.Medians(), ElementsAre(102us, 160us));
  EXPECT_EQ(steps.Fewest(), 1);
  EXPECT_EQ(steps.Disturbed(), 0);
}

TEST_F(QuietStepsTest, AStepThatIsNeverQuietHasTheMedianOfAll) {
  steps.Add({{100us, kQuiet}, {200us, kBusy}});
  steps.Add({{101us, kQuiet}, {220us, kBusy}});
  steps.Add({{102us, kQuiet}, {260us, kBusy}});
  EXPECT_THAT(steps.Medians(), ElementsAre(101us, 220us));
  EXPECT_EQ(steps.Fewest(), 0);
  EXPECT_EQ(steps.Disturbed(), 1);
}

// What is quiet is known by the quietest look of all, whenever it comes.
TEST_F(QuietStepsTest, ALaterRunCanShowThatEarlierOnesWereDisturbed) {
  steps.Add({{140us, kBusy}});
  EXPECT_EQ(steps.Disturbed(), 0);
  EXPECT_THAT(steps.Medians(), ElementsAre(140us));
  steps.Add({{100us, kQuiet}});
  EXPECT_THAT(steps.Medians(), ElementsAre(100us));
  EXPECT_EQ(steps.Fewest(), 1);
}

TEST_F(QuietStepsTest, ARunThatIsDisturbedAllAlongIsKnownByOthers) {
  QuietSteps before(seen);
  before.Add({{100us, kQuiet}, {100us, kQuiet}});
  steps.Add({{140us, kBusy}, {280us, kBusy}});
  EXPECT_EQ(steps.Disturbed(), 2);
  EXPECT_THAT(steps.Medians(), ElementsAre(140us, 280us));
}

// As a look behind a sleep can have it.
TEST_F(QuietStepsTest, ALowLoadDoesNotMakeTheOthersDisturbed) {
  std::vector<kernels::RanStep> run(24, {100us, kQuiet});
  run[5].core_load = kQuiet * 0.75;
  run[7] = {140us, kBusy};
  steps.Add(run);
  run[7] = {100us, kQuiet};
  steps.Add(run);
  EXPECT_EQ(steps.Disturbed(), 0);
  EXPECT_EQ(steps.Fewest(), 1);
  EXPECT_THAT(steps.Medians(), testing::Each(100us));
}

// A selection by what steps took would tell other times of steps that nobody disturbs.
TEST_F(QuietStepsTest, TheMedianOfAllWhereNothingIsDisturbed) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> time(100, 999);
  std::vector<int> times;
  for (int run = 0; run < 9; ++run) {
    times.push_back(time(random));
    steps.Add({{times.back() * 1us, kQuiet}});
  }
  std::ranges::sort(times);
  EXPECT_THAT(steps.Medians(), ElementsAre(times[4] * 1us));
  EXPECT_EQ(steps.Fewest(), 9);
}

}  // namespace
}  // namespace stallcast::capture
