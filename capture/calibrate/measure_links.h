// Copies, zero-copy reads and device memory, alone and beside one another.
#pragma once

#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in memory.bandwidth and what reads lose to copies and gathers.
void MeasureMemory(Stopwatch& watch, hardware::Profile& profile);
/// Fills in link.*, copy.* and batch.*.
void MeasureCopies(Stopwatch& watch, hardware::Profile& profile);
/// Fills in zero_copy.*.
void MeasureZeroCopy(Stopwatch& watch, hardware::Profile& profile);

}  // namespace stallcast::capture
