// How much of the host's memory a recall reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "traces/common/units.h"

namespace stallcast::plan {

/// Bytes of the host's memory whose addresses one look into the tables translates: a line of 64
/// bytes holds those of eight pages of 4 KiB.
inline constexpr Bytes kHostRegion = Bytes{32} * 1024;
/// Bytes of it that a copy engine has translated when it has read some of them: pieces 32 KiB apart
/// cost it no more than those that follow one another, pieces 64 KiB apart what others do.
inline constexpr Bytes kCopyRegion = Bytes{64} * 1024;

/// What a gather reads: in how many regions some of its pieces lie, and in how many of these some
/// of the gather's before it did.
struct RegionsRead {
  int64_t regions = 0, again = 0;
};

/// Of ascending numbers of pieces that lie one behind the other, `a_region` >= 1 in each region;
/// `before` likewise.
inline RegionsRead Regions(std::span<const uint32_t> pieces, std::span<const uint32_t> before,
                           uint32_t a_region) {
  RegionsRead read;
  auto old = before.begin();
  for (auto piece = pieces.begin(); piece != pieces.end(); ++read.regions) {
    const uint32_t region = *piece / a_region;
    piece = std::find_if(piece, pieces.end(), [&](uint32_t n) { return n / a_region != region; });
    old = std::find_if(old, before.end(), [&](uint32_t n) { return n / a_region >= region; });
    if (old != before.end() && *old / a_region == region) ++read.again;
  }
  return read;
}

}  // namespace stallcast::plan
