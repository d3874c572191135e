// What the translation of addresses adds where pieces lie scattered over the pools of many layers.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// From the pools of layers in turn, fills in zero_copy.translation, by fetches of 100 scattered
/// tokens of each of some rows (single keys and values), the same in each turn,
/// zero_copy.translation_anew, by fetches of others in each turn, and copy.h2d_translation, by
/// copies of 32 pages for each of eight heads. Before each, other bytes are read, as many as a
/// layer's products read. The pools are 16 GiB together, or a quarter of host.bytes where that is
/// less. Takes host.bytes, device.gap, link.h2d, zero_copy.start and zero_copy.rate from the
/// profile.
void MeasureTranslation(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
