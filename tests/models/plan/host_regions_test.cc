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
  EXPECT_EQ(Regions(pieces, {}, 4).regions, 4) << "0 to 3, 4 to 7, 8 to 11 and 20 to 23";
  EXPECT_EQ(Regions(pieces, {}, 1).regions, 6);
  EXPECT_EQ(Regions({}, pieces, 4).regions, 0);
  EXPECT_EQ(Regions(pieces, {}, 4).again, 0);
  EXPECT_EQ(Regions(pieces, std::vector<uint32_t>{5, 12, 23}, 4).again, 2) << "4 to 7, 20 to 23";
}

TEST(HostRegions, OfRandomPiecesAsSetsCountThem) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const uint32_t a_region = 1 + random() % 20;
    const auto some = [&](std::set<uint32_t>& regions) {
      std::vector<uint32_t> pieces(random() % 40);
      for (uint32_t& piece : pieces) {
        piece = random() % 300;
        regions.insert(piece / a_region);
      }
      std::ranges::sort(pieces);
      return pieces;
    };
    std::set<uint32_t> now, before;
    const std::vector<uint32_t> pieces = some(now), pieces_before = some(before);
    const RegionsRead read = Regions(pieces, pieces_before, a_region);
    EXPECT_EQ(read.regions, std::ssize(now));
    EXPECT_EQ(read.again,
              std::ranges::count_if(now, [&](uint32_t region) { return before.contains(region); }));
  }
}

}  // namespace
}  // namespace stallcast::plan
