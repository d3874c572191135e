// Copies, zero-copy reads and device memory, alone and beside one another.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in memory.bandwidth.
void MeasureMemory(Stopwatch& watch, hardware::Profile& profile);
/// Fills in link.*, copy.* but copy.crowded_piece, batch.* and host.batch_call. Takes
/// memory.bandwidth from the profile.
void MeasureCopies(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);
/// Fills in zero_copy.*. Takes link.h2d, memory.bandwidth and device.gap from the profile.
void MeasureZeroCopy(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
