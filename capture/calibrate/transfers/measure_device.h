// What passes between kernels and copies on the device, and what a loaded memory adds.
#pragma once

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in the hand-offs between kernels and copies, in a stream and by events, from the device's
/// clock in kernels before and after. Takes that between kernels from the profile. The front ends
/// of kernels and of copies look whether what a stream waits for is done when its commands come,
/// and every 8.2 us from the last commands on: what is measured, and meant, are means over kernels
/// of random length.
void MeasureHandovers(Stopwatch& watch, hardware::Profile& profile);

/// Fills in copy.group_turn: trains of copies with a kernel behind each by turns on two streams of
/// a group, against two of both groups; and crowded_piece, of such while a third stream waits for
/// them, against pages alone.
void MeasureGroupTurn(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
