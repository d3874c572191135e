// What the weights on their way to a product do to other kernels.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/layer_pools.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in product.holds_kernel and holds_round: trains of kernels that scatter two pages, and of
/// zero-copy gathers in few rounds and in many, all of it enqueued before, beside products of
/// one row that stream weights all the while, against the same alone.
void MeasureBesideProduct(Stopwatch& watch, const CopyEnds& ends, const LayerPools& pools,
                          hardware::Profile& profile);

}  // namespace stallcast::capture
