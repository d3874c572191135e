// How a timeline's slices lie on tracks, for formats in which slices of one track may not overlap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::traces {

/// Throws Error when the timeline has a FirstFault.
void RequireNoFault(const Timeline& timeline);

struct Track {
  uint16_t lane = 0;
  uint32_t sub = 0;  ///< 0 for the lane's own track, then one more for each level of overlap
};

struct Layout {
  std::vector<Track> tracks;           ///< every lane has one at least; in order of lane, then sub
  std::vector<uint32_t> track_of_row;  ///< index into `tracks`
};

/// Rows in the order in which they follow on their tracks: by start, then by duration, so that an
/// empty slice precedes the one that begins with it.
std::vector<size_t> InOrder(const Timeline& timeline);

/// Gives every row the lowest track of its lane that is free at its start.
Layout LayOut(const Timeline& timeline);

/// The lane's name, with the level of overlap where there is one.
std::string TrackName(const Timeline& timeline, const Track& track);
/// "predicted: <title>".
std::string GroupName(const Timeline& timeline);

/// A wait between two rows; `from` starts no later than `to`.
struct RowFlow {
  int64_t from = 0;
  int64_t to = 0;
};

/// The flows whose two ops both have rows. An op with several rows is represented by its last one
/// on a lane that is not a host's, which is its run and not its launch.
std::vector<RowFlow> FlowsBetweenRows(const Timeline& timeline);

/// Turns the flows of a timeline that was exported, whose arrows go forward in time: of two ops the
/// one that ends first is the one that was waited for. A wait of the host starts before it.
void DirectFlowsByEnds(Timeline* timeline);

/// The earliest start; what exports count time from.
Picoseconds FirstStart(const Timeline& timeline);

}  // namespace stallcast::traces
