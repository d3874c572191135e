#include "models/hardware/write_back.h"

#include <gtest/gtest.h>

namespace stallcast::hardware {
namespace {

Profile Dragged(std::vector<double> bytes, std::vector<double> seconds, double most) {
  Profile profile;
  profile.zero_copy.drag = Curve(std::move(bytes), std::move(seconds));
  profile.memory.drag_most = most;
  return profile;
}

TEST(WriteBack, IsLinearBetweenSamplesFromNothingOn) {
  const WriteBack of(Dragged({1e6, 4e6}, {2e-6, 5e-6}, 10e-6));
  EXPECT_EQ(of.Seconds(0), 0);
  EXPECT_DOUBLE_EQ(of.Seconds(0.5e6), 1e-6);
  EXPECT_DOUBLE_EQ(of.Seconds(2e6), 3e-6);
  EXPECT_DOUBLE_EQ(of.Seconds(1e9), 5e-6);
  EXPECT_EQ(of.Bytes(0), 0);
  EXPECT_DOUBLE_EQ(of.Bytes(7e-6), 4e6);
  for (double bytes = 0; bytes <= 4e6; bytes += 1e5) {
    EXPECT_NEAR(of.Bytes(of.Seconds(bytes)), bytes, 1e-3) << bytes;
  }
}

TEST(WriteBack, CostsAtMostWhatTheProfileAllows) {
  const WriteBack of(Dragged({1e6, 4e6, 8e6}, {2e-6, 5e-6, 9e-6}, 3.5e-6));
  EXPECT_DOUBLE_EQ(of.Seconds(2e6), 3e-6);
  EXPECT_DOUBLE_EQ(of.Seconds(2.5e6), 3.5e-6);
  EXPECT_DOUBLE_EQ(of.Seconds(8e6), 3.5e-6);
  EXPECT_EQ(WriteBack(Dragged({1e6, 4e6}, {2e-6, 5e-6}, 0)).Seconds(1e9), 0);
}

TEST(WriteBack, NeverFallsWhereSamplesDo) {
  const WriteBack of(Dragged({1e6, 2e6, 4e6}, {3e-6, 2e-6, 5e-6}, 10e-6));
  EXPECT_DOUBLE_EQ(of.Seconds(1e6), 2e-6);
  EXPECT_DOUBLE_EQ(of.Seconds(4e6), 5e-6);
  double before = 0;
  for (double bytes = 0; bytes <= 5e6; bytes += 1e5) {
    EXPECT_GE(of.Seconds(bytes), before);
    before = of.Seconds(bytes);
  }
}

TEST(WriteBack, WithoutSamplesNothingIsLost) {
  Profile profile;
  profile.memory.drag_most = 4e-6;
  const WriteBack of(profile);
  EXPECT_EQ(of.Seconds(1e9), 0);
  EXPECT_EQ(of.Bytes(1e-6), 0);
}

}  // namespace
}  // namespace stallcast::hardware
