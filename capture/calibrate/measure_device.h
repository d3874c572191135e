// What passes between kernels and copies on the device, and what a loaded memory adds.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in device.copy_gap, event_latency, event_to_copy and event_from_copy, from the device's
/// clock in kernels before and after. Takes device.gap from the profile. The front ends of kernels
/// and of copies look whether what a stream waits for is done when its commands come, and every 8.2
/// us from the last commands on: what is measured, and meant, are means over kernels of random
/// length.
void MeasureHandovers(Stopwatch& watch, hardware::Profile& profile);

/// Fills in device.crowded_gap, between kernels beside trains of copies with a kernel behind each
/// on another stream of their group; copy.group_turn, of such trains by turns on two streams of a
/// group against two of both groups; and crowded_piece, of such on two streams of a group while a
/// third waits for them against pages alone.
void MeasureCrowding(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

/// Fills in copy.h2d_turns: small copies that two threads call on two streams of a group, against
/// the same on one. `link`: bytes/s of copies to the GPU.
void MeasureTurns(Stopwatch& watch, const CopyEnds& ends, double link, hardware::Profile& profile);

/// Fills in the load curves: the start of kernels and of copies' pieces beside reads at several
/// shares of the memory's bandwidth.
void MeasureLoad(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
