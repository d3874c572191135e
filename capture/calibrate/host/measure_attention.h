// How fast threads of the host attend what lies in its memory.
#pragma once

#include "capture/calibrate/transfers/layer_pools.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Times attention of one layer's pool after the other, eight KV heads of 128 channels with four
/// query heads each, by 1, 2, 4, ... threads. Fills in host.attention_rate: bytes of keys and
/// values a second, from two lengths, so that waking the threads does not count.
void MeasureHostAttention(const LayerPools& pools, hardware::Profile& profile);

}  // namespace stallcast::capture
