// What the weights on their way to a product do to other kernels, and to copies.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/layer_pools.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// What the start of a copy's piece takes longer beside products, s.
struct PiecesBesideProduct {
  double h2d = 0, d2h = 0;
};
/// Of pages of 16 KiB: trains of them, all of it enqueued before, beside products of one row that
/// stream weights all the while, against the same alone.
PiecesBesideProduct MeasurePiecesBesideProduct(Stopwatch& watch, const CopyEnds& ends);

/// Fills in product.*: the same of those pages, of kernels that scatter two pages, and of zero-copy
/// gathers in few rounds and in many.
void MeasureBesideProduct(Stopwatch& watch, const CopyEnds& ends, const LayerPools& pools,
                          hardware::Profile& profile);

}  // namespace stallcast::capture
