// Copies, zero-copy reads and device memory, alone and beside one another.
#pragma once

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "capture/calibrate/transfers/link_rates.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Now, by copies of 256 MiB.
LinkRates MeasureLink(Stopwatch& watch, const CopyEnds& ends);

/// Fills in memory.bandwidth.
void MeasureMemory(Stopwatch& watch, hardware::Profile& profile);
/// Fills in copy.* but copy.group_turn, inline_below and translation, and link.h2d and d2h, as
/// they are at the moment.
void MeasureCopies(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);
/// Fills in zero_copy.rate, start, spread and memory_loss. Takes link.h2d and
/// the hand-off between kernels from the profile.
void MeasureZeroCopy(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
