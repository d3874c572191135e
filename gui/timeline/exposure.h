// SPDX-License-Identifier: GPL-3.0-or-later
// Whom the compute lane waited for, read off a timeline.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::gui {

class TimelineModel;

/// A time in which the compute lane did nothing, or moved data instead of computing.
struct Exposure {
  Picoseconds start{0}, duration{0};
  traces::Role role = traces::Role::kOther;  ///< what it waited for
  /// Row under way meanwhile, or last ended (of several host calls the last); -1: not known.
  int64_t cause = -1;
};

/// From the start of each op back along what it waited for (flows, its call, what was before it on
/// its lane), as sim::Measure does with the engine's own causes: each instant is charged to the row
/// under way, launch latency and gaps to `host`, the time between an op's end and the host's going
/// on to `sync`. Where nothing of this is known (imported files) the row that ended last before it
/// on another lane is named, if any. Ascending, without overlap.
std::vector<Exposure> FindExposures(const TimelineModel& model, int32_t lane);

}  // namespace stallcast::gui
