// How much of the host's memory a zero-copy gather reads that has not been read lately.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "traces/common/units.h"

namespace stallcast::plan {

/// Bytes of the host's memory whose addresses one look into the tables translates: a line of 64
/// bytes holds those of eight pages of 4 KiB.
inline constexpr Bytes kHostRegion = 32 * 1024;

/// Regions in which some of `now` lie and none of `before`: ascending numbers of pieces that lie
/// one behind the other, `a_region` >= 1 in each.
inline int64_t NewRegions(std::span<const uint32_t> now, std::span<const uint32_t> before,
                          uint32_t a_region) {
  int64_t regions = 0;
  auto other = before.begin();
  for (auto piece = now.begin(); piece != now.end();) {
    const uint32_t region = *piece / a_region;
    other = std::find_if(other, before.end(), [&](uint32_t b) { return b / a_region >= region; });
    if (other == before.end() || *other / a_region != region) ++regions;
    piece = std::find_if(piece, now.end(), [&](uint32_t n) { return n / a_region != region; });
  }
  return regions;
}

}  // namespace stallcast::plan
