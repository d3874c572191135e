// What a zero-copy gather's bytes on their way do to others: what starts late, who gets the link.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in zero_copy.holds_*: trains of empty kernels and of copies of a page either way, all of
/// it enqueued before, beside gathers that keep the link busy all the while, against the same
/// alone; and zero_copy.link_share: a gather beside large copies, and such copies beside a gather.
void MeasureBesideGather(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
