#include "models/hardware/timed_points.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace stallcast::hardware {
namespace {

TEST(TimedPointsTest, ATimedShapeCostsWhatWasTimedAndAFarOneWhatTheLawSays) {
  const TimedPoints points(std::vector<KernelPoint>{{.shape = {64, 8, 1, 1}, .factor = 1.5},
                                                    {.shape = {256, 8, 1, 1}, .factor = 0.5}});
  EXPECT_EQ(points.At({64, 8, 1, 1}).factor, 1.5);
  EXPECT_EQ(points.At({256, 8, 1, 1}).factor, 0.5);
  EXPECT_NEAR(points.At({64e-12, 8, 1, 1}).factor, 1, 1e-4);
  EXPECT_EQ(points.At({64e12, 8, 1, 1}).factor, 0.5);  // beyond all, the last one's
  EXPECT_EQ(TimedPoints().At({64, 8, 1, 1}).factor, 1);
}

// Weights 1/d^4: of the point at distance d, and of factor 1 at two octaves.
TEST(TimedPointsTest, OnePointsFactorFadesWithTheFourthPowerOfTheDistance) {
  const TimedPoints points(std::vector<KernelPoint>{{.shape = {1, 1, 1, 1}, .factor = 2}});
  for (const double octaves : {0.5, 1.0, 2.0, 3.0}) {
    const double weight = std::pow(octaves, -4);
    EXPECT_NEAR(points.At({1, std::exp2(-octaves), 1, 1}).factor,
                std::pow(2, weight / (weight + 1.0 / 16)), 1e-12);
  }
  // Distance is Euclidean: 3 and 4 half octaves are 2.5.
  EXPECT_NEAR(points.At({std::exp2(-1.5), 1, std::exp2(-2), 1}).factor,
              points.At({std::exp2(-2.5), 1, 1, 1}).factor, 1e-12);
}

TEST(TimedPointsTest, ATimedShapeDragsAsTimedAndAFarOneDoesNot) {
  const TimedPoints points(
      std::vector<KernelPoint>{{.shape = {64, 8, 1, 1}, .drag = 2e-6}, {.shape = {256, 8, 1, 1}}});
  EXPECT_EQ(points.At({64, 8, 1, 1}).drag, 2e-6);
  EXPECT_EQ(points.At({256, 8, 1, 1}).drag, 0);
  // Half-way: weights of 1 each and of 1/16 for nothing.
  EXPECT_NEAR(points.At({128, 8, 1, 1}).drag, 2e-6 / (2 + 1.0 / 16), 1e-15);
  EXPECT_LT(points.At({64e-12, 8, 1, 1}).drag, 1e-9);
  EXPECT_EQ(TimedPoints().At({64, 8, 1, 1}).drag, 0);
}

TEST(TimedPointsTest, BetweenNeighboursItLiesBetweenTheirFactors) {
  const TimedPoints points(
      std::vector<KernelPoint>{{.shape = {16, 1, 1, 1}, .factor = 1.2, .host_factor = 3},
                               {.shape = {32, 1, 1, 1}, .factor = 1.8, .host_factor = 2}});
  double last = 1.2, last_host = 3;
  for (const double octaves : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    const double size = 16 * std::exp2(octaves);
    const double factor = points.At({size, 1, 1, 1}).factor;
    EXPECT_GT(factor, last);
    EXPECT_LT(factor, 1.8);
    last = factor;
    const double host = points.At({size, 1, 1, 1}).host_factor;
    EXPECT_LT(host, last_host);
    EXPECT_GT(host, 2);
    last_host = host;
  }
}

}  // namespace
}  // namespace stallcast::hardware
