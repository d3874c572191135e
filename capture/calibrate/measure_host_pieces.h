// What reads of host memory cost the kernels behind them.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in memory.host_piece, host_pieces and host_share from a recording: products that stream
/// through the weights of a model, behind copies of pieces that lie scattered over the host's
/// memory and behind none. False where nothing can be recorded or memory is short: then all are 0.
bool MeasureHostPieces(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
