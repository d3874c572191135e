#include "models/plan/host_regions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace stallcast::plan {
namespace {

TEST(HostRegions, PiecesOfOneRegionCountOnce) {
  const std::vector<uint32_t> pieces = {0, 3, 4, 7, 8, 20};
  EXPECT_EQ(Regions(pieces, 4), 4) << "0 to 3, 4 to 7, 8 to 11 and 20 to 23";
  EXPECT_EQ(Regions(pieces, 1), 6);
  EXPECT_EQ(Regions({}, 4), 0);
}

TEST(HostRegions, OfRandomPiecesAsASetCountsThem) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const uint32_t a_region = 1 + random() % 20;
    std::vector<uint32_t> pieces(random() % 40);
    std::set<uint32_t> regions;
    for (uint32_t& piece : pieces) {
      piece = random() % 300;
      regions.insert(piece / a_region);
    }
    std::ranges::sort(pieces);
    EXPECT_EQ(Regions(pieces, a_region), std::ssize(regions));
  }
}

}  // namespace
}  // namespace stallcast::plan
