// When a run is timed a second time, and which of the two counts.
#include "capture/gpu/timed_as_calibrated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stallcast::capture {
namespace {

using testing::Pair;

struct Host {
  std::vector<double> launches;  // us, of the first time and of the second
  size_t times = 0;

  std::pair<double, bool> Timed() {
    return TimedAsCalibrated([this] { return launches.at(times++); },
                             [](double launch) { return launch < 4; });
  }
};

TEST(TimedAsCalibrated, OnceWhereTheHostIsAsCalibrated) {
  Host host{{3.5, 3.4}};
  EXPECT_THAT(host.Timed(), Pair(3.5, false));
  EXPECT_EQ(host.times, 1);
}

TEST(TimedAsCalibrated, TheSecondCountsWhereTheHostIsAsCalibratedThen) {
  Host host{{5, 3.5}};
  EXPECT_THAT(host.Timed(), Pair(3.5, true));
  EXPECT_EQ(host.times, 2);
}

TEST(TimedAsCalibrated, TheFirstCountsWhereTheHostIsNotAsCalibratedEither) {
  Host host{{5, 4.5}};
  EXPECT_THAT(host.Timed(), Pair(5, false));
  EXPECT_EQ(host.times, 2);
}

}  // namespace
}  // namespace stallcast::capture
