// Copies, zero-copy reads and device memory, alone and beside one another.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/link_rates.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Now, by copies of 256 MiB.
LinkRates MeasureLink(Stopwatch& watch, const CopyEnds& ends);

/// Fills in memory.bandwidth.
void MeasureMemory(Stopwatch& watch, hardware::Profile& profile);
/// Fills in copy.* but copy.crowded_piece and inline_below, and link.h2d and d2h, as they are at
/// the moment.
void MeasureCopies(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);
/// Fills in zero_copy.* but zero_copy.translation. Takes link.h2d and device.gap from the profile.
void MeasureZeroCopy(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);
/// Fills in zero_copy.translation: what fetches of 100 scattered tokens of each of some rows
/// (single keys and values) take longer than their bytes, from parts of a pool that take turns as
/// layers do; before each as much is read as a decoder's products read. The pool is 16 GiB, or a
/// quarter of host.bytes where that is less. Takes host.bytes, device.gap, link.h2d,
/// zero_copy.start and zero_copy.rate from the profile.
void MeasureTranslation(Stopwatch& watch, hardware::Profile& profile);

}  // namespace stallcast::capture
