// How much of the host's memory a zero-copy gather reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "traces/common/units.h"

namespace stallcast::plan {

/// Bytes of the host's memory whose addresses one look into the tables translates: a line of 64
/// bytes holds those of eight pages of 4 KiB.
inline constexpr Bytes kHostRegion = Bytes{32} * 1024;

/// Regions in which some of `pieces` lie: ascending numbers of pieces that lie one behind the
/// other, `a_region` >= 1 in each.
inline int64_t Regions(std::span<const uint32_t> pieces, uint32_t a_region) {
  int64_t regions = 0;
  for (auto piece = pieces.begin(); piece != pieces.end(); ++regions) {
    const uint32_t region = *piece / a_region;
    piece = std::find_if(piece, pieces.end(), [&](uint32_t n) { return n / a_region != region; });
  }
  return regions;
}

}  // namespace stallcast::plan
