// What passes between kernels and copies on the device, and what a loaded memory adds.
#pragma once

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in the hand-offs between kernels and copies, in a stream and by events. Kernels before and
/// after read the device's clock. The hand-off between two kernels comes from the profile.
///
/// A front end checks a wait when its commands arrive, and every 8.2 us after the last commands.
/// A hand-off therefore depends on the length of the kernel before it. The values are means over
/// kernels of random length.
void MeasureHandovers(Stopwatch& watch, hardware::Profile& profile);

/// Fills in copy.group_turn and copy.crowded_piece. Both come from trains of copies, each followed
/// by a kernel, in turn on two streams. For group_turn, two streams of one group are compared with
/// two of different groups. For crowded_piece, a third stream waits for the train; the comparison
/// is with pages alone.
void MeasureGroupTurn(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
