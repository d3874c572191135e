#include "models/plan/host_regions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace stallcast::plan {
namespace {

TEST(HostRegions, ThoseWithNoneOfTheOthersAreNew) {
  const std::vector<uint32_t> now = {0, 3, 4, 7, 8, 20}, before = {2, 9, 30};
  EXPECT_EQ(NewRegions(now, before, 4), 2) << "4 to 7 and 20 to 23";
  EXPECT_EQ(NewRegions(now, {}, 4), 4);
  EXPECT_EQ(NewRegions({}, before, 4), 0);
  EXPECT_EQ(NewRegions(now, now, 1), 0);
}

TEST(HostRegions, OfRandomPiecesAsSetsCountThem) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const uint32_t a_region = 1 + random() % 20;
    const auto pieces = [&] {
      std::vector<uint32_t> chosen(random() % 40);
      for (uint32_t& piece : chosen) piece = random() % 300;
      std::ranges::sort(chosen);
      return chosen;
    };
    const std::vector<uint32_t> now = pieces(), before = pieces();
    std::set<uint32_t> regions;
    for (const uint32_t piece : now) regions.insert(piece / a_region);
    for (const uint32_t piece : before) regions.erase(piece / a_region);
    EXPECT_EQ(NewRegions(now, before, a_region), std::ssize(regions));
  }
}

}  // namespace
}  // namespace stallcast::plan
