// Copies, zero-copy reads and device memory, alone and beside one another.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/layer_pages.h"
#include "capture/calibrate/link_rates.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Now, by copies of 256 MiB.
LinkRates MeasureLink(Stopwatch& watch, const CopyEnds& ends);

/// Fills in memory.bandwidth.
void MeasureMemory(Stopwatch& watch, hardware::Profile& profile);
/// Fills in copy.* but copy.crowded_piece and inline_below, and link.h2d and d2h, as they are at
/// the moment; pages to the GPU as layers recall them: those that lie one behind the other, and
/// what those take longer that lie anywhere.
void MeasureCopies(Stopwatch& watch, const CopyEnds& ends, LayerPages& pages,
                   hardware::Profile& profile);
/// Fills in zero_copy.rate, start, spread and memory_loss. Takes link.h2d and device.gap from the
/// profile.
void MeasureZeroCopy(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
