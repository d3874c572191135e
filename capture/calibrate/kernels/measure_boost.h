// How much faster kernels compute before the power limit sets the clock.
#pragma once

#include "capture/calibrate/timing/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in device.boost and boost_time: a large product again and again on a GPU that was idle,
/// each timed, until its time no longer changes. Both 0 where it never changes by a fiftieth.
void MeasureBoost(Stopwatch& watch, hardware::Profile& profile);

}  // namespace stallcast::capture
