// What CUDA calls cost the host, and what passes between ops.
#pragma once

#include <optional>

#include "capture/calibrate/host/host_drift.h"
#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Seconds of the call that launches an empty kernel on a stream with work, which is what
/// host.launch is, on the calling thread's core: the median of so many trials of 200.
double LaunchHere(Stopwatch& watch, int trials = 15);
/// The same of the call that copies a page to the GPU, each another: the at-th and so on.
double CopyHere(Stopwatch& watch, const CopyEnds& ends, int& at, int trials = 15);
/// These and others, now, on the calling thread's core.
HostCalls MeasureCalls(Stopwatch& watch, const CopyEnds& ends);

/// What a host waits for behind its calls, now, on the calling thread's core.
HostWaits MeasureWaits(Stopwatch& watch, const CopyEnds& ends);

/// Fills in host.* but what MeasureCalls(), MeasureWaits() and Threads time; of these,
/// host.launch as it is at the moment. The calling thread is kept on the fastest core.
void MeasureHost(Stopwatch& watch, hardware::Profile& profile);

/// Fills in the hand-offs between kernels, in a stream and in a graph, from a recording of empty
/// kernels and of flags. The recording also divides the time of launch and synchronisation between
/// launch and host.
///
/// Returns the share of a flag's latency that passes before its copy, or nothing where recording
/// is not possible. The assumed values then stay. CUDA calls are slower afterwards: measure host
/// times first.
std::optional<double> MeasureGaps(Stopwatch& watch, const CopyEnds& ends,
                                  hardware::Profile& profile);

/// Fills in recorder.*: what copies and calls take more while CUPTI records them than just before,
/// on one core. 0 where nothing can be recorded.
void MeasureRecorder(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

/// Fills in copy.h2d_inline_time from a recording, at the sizes of copy.h2d_inline_call; empty
/// where nothing can be recorded.
void RecordInlinedCopies(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
