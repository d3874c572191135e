// What the translation of addresses takes where pieces lie scattered over the pools of many layers.
#pragma once

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/layer_pools.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in zero_copy.translation, by fetches of 100 scattered tokens of each of some rows (single
/// keys and values) from the pools of layers in turn, of others in each turn, and round_ahead by
/// fetches of chunks of eight tokens' values with one block. Before each, other bytes are read, as
/// many as a layer's GEMMs read. Where their bytes take longer, these count. Takes the gap and
/// zero_copy.start from the profile.
void MeasureTranslation(Stopwatch& watch, const LayerPools& layers, hardware::Profile& profile);

}  // namespace stallcast::capture
