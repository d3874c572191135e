#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/hardware/profile.h"
#include "traces/common/error.h"

namespace stallcast::hardware {
namespace {

TEST(CurveTest, GoesThroughItsSamplesAndIsAPowerLawBetween) {
  const Curve curve({1, 100, 1000}, {2, 200, 50});
  EXPECT_EQ(curve.At(1), 2);
  EXPECT_EQ(curve.At(100), 200);
  EXPECT_EQ(curve.At(1000), 50);
  EXPECT_NEAR(curve.At(10), 20, 1e-12);
  EXPECT_NEAR(curve.At(100 * std::sqrt(10.0)), 100, 1e-10);
}

TEST(CurveTest, HoldsItsEndsOutside) {
  const Curve curve({4, 64}, {3, 7});
  EXPECT_EQ(curve.At(0), 3);
  EXPECT_EQ(curve.At(1), 3);
  EXPECT_EQ(curve.At(1e18), 7);
  EXPECT_FALSE(curve.Covers(3.9));
  EXPECT_TRUE(curve.Covers(4));
  EXPECT_TRUE(curve.Covers(64));
  EXPECT_FALSE(curve.Covers(64.1));
}

TEST(CurveTest, FromZeroItRisesToItsFirstSample) {
  const Curve curve({4, 64}, {3, 7});
  EXPECT_EQ(curve.FromZero(0), 0);
  EXPECT_EQ(curve.FromZero(1), 0.75);
  for (const double x : {4.0, 16.0, 64.0, 1e18}) EXPECT_EQ(curve.FromZero(x), curve.At(x));
}

TEST(CurveTest, RefusesSamplesThatAreNoCurve) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(Curve({2, 1}, {1, 1}), Error);
  EXPECT_THROW(Curve({1, 1}, {1, 1}), Error);
  EXPECT_THROW(Curve({0, 1}, {1, 1}), Error);
  EXPECT_THROW(Curve({1, 2}, {1}), Error);
  EXPECT_THROW(Curve({}, {}), Error);
  EXPECT_THROW(Curve({1, 2}, {1, 0}), Error);
  EXPECT_THROW(Curve({1, 2}, {1, nan}), Error);
  EXPECT_THROW(Curve({1, nan}, {1, 1}), Error);
  EXPECT_THROW(Curve({1, infinity}, {1, 1}), Error);
  EXPECT_THROW(Surface({1, 2}, {1, 2}, {1, 1, 1}), Error);
}

TEST(SurfaceTest, InterpolatesBothWaysInLogSpace) {
  const Surface table({100, 10000}, {1, 16}, {1, 16, 100, 1600});
  EXPECT_EQ(table.At(100, 1), 1);
  EXPECT_EQ(table.At(10000, 16), 1600);
  EXPECT_NEAR(table.At(100, 4), 4, 1e-12);
  EXPECT_NEAR(table.At(1000, 4), 40, 1e-10);
  EXPECT_EQ(table.At(1, 0.5), 1);
  EXPECT_EQ(table.At(1e9, 1e9), 1600);
  EXPECT_TRUE(table.Covers(100, 16));
  EXPECT_FALSE(table.Covers(99, 16));
  EXPECT_FALSE(table.Covers(100, 17));
}

// The time of a byte beside the wire stays; the wire's part changes.
TEST(SurfaceTest, AFasterLinkHelpsWhatTheLinkBounds) {
  Surface table({1000}, {1, 8}, {10e9, 50e9});
  table.Relink(50e9, 100e9);
  EXPECT_NEAR(table.At(1000, 8), 100e9, 1);
  EXPECT_NEAR(table.At(1000, 1), 1 / (1 / 10e9 - 1 / 50e9 + 1 / 100e9), 1);
  table.Relink(100e9, 50e9);
  EXPECT_NEAR(table.At(1000, 1), 10e9, 1);
  // What was timed a little above the wire's rate takes the wire's time, no less.
  Surface above({1000}, {1}, {51e9});
  above.Relink(50e9, 100e9);
  EXPECT_NEAR(above.At(1000, 1), 100e9, 1);
}

}  // namespace
}  // namespace stallcast::hardware
