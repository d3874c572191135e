// What is recommended: the fastest that is good enough, else the nearest.
#include "sim/requirements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace stallcast::sim {
namespace {

const Figures kFast{.fits = true, .step_ms = 5, .attention_mass = 0.90, .gpu_bytes = 10e9};
const Figures kGood{.fits = true, .step_ms = 9, .attention_mass = 0.96, .gpu_bytes = 20e9};
const Figures kBest{.fits = true, .step_ms = 30, .attention_mass = 1, .gpu_bytes = 30e9};
const Figures kLarge{.fits = false, .step_ms = 1, .attention_mass = 1, .gpu_bytes = 90e9};

TEST(RequirementsTest, TheFastestThatMeetsAllIsChosen) {
  const std::vector<Figures> all = {kLarge, kFast, kBest, kGood};
  EXPECT_EQ(FastestThatMeets(all, {}), 3u);
  EXPECT_EQ(FastestThatMeets(all, {.min_mass = 0}), 1u);
  EXPECT_EQ(FastestThatMeets(all, {.min_mass = 0.99}), 2u);
  EXPECT_EQ(FastestThatMeets(all, {.max_gpu_bytes = 15e9}), all.size());
  EXPECT_EQ(FastestThatMeets(all, {.min_mass = 0.99, .max_step_ms = 20}), all.size());
  EXPECT_EQ(FastestThatMeets({}, {}), 0u);
}

TEST(RequirementsTest, TheNearestMissesLeast) {
  const std::vector<Figures> all = {kLarge, kFast, kBest, kGood};
  EXPECT_EQ(Nearest(all, {.max_gpu_bytes = 19.5e9}), 3u);  // 2.6 % too large
  EXPECT_EQ(Nearest(all, {.min_mass = 0.97}), 2u);         // it meets them
}

TEST(RequirementsTest, NotKnownIsNotEnough) {
  Figures unknown = kFast;
  unknown.attention_mass = std::nan("");
  EXPECT_FALSE(Requirements{}.Met(unknown));
  EXPECT_EQ(Requirements{}.Shortfall(unknown), 1);
  EXPECT_TRUE(Requirements{.min_mass = 0}.Met(unknown));
}

TEST(RequirementsTest, AMassIsWrittenOnTheSideOfTheLimitThatItIsOn) {
  const Requirements required{.min_mass = 0.8};
  for (const double mass : {0.5, 0.79, 0.7994, 0.7996, 0.79999, 0.8, 0.80001, 0.9}) {
    EXPECT_EQ(std::stod(required.MassText(mass)) < 0.8, mass < 0.8) << mass;
    EXPECT_NEAR(std::stod(required.MassText(mass)), mass, 0.0005);
  }
}

TEST(RequirementsTest, ShortfallIsZeroExactlyWhereMet) {
  for (const Figures& f : {kFast, kGood, kBest, kLarge}) {
    for (const double mass : {0.0, 0.9, 0.95, 1.0}) {
      for (const double gpu : {10e9, 25e9, Requirements::kAny}) {
        const Requirements required{.min_mass = mass, .max_gpu_bytes = gpu, .max_step_ms = 10};
        EXPECT_EQ(required.Shortfall(f) == 0, required.Met(f));
        EXPECT_EQ(required.Missed(f).empty(), required.Met(f));
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::sim
