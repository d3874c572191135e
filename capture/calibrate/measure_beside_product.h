// What the weights on their way to a product do to others: what starts late.
#pragma once

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in product.holds_*: trains of kernels that scatter two pages and of copies of a page either
/// way, all of it enqueued before, beside products of a decoder's few rows that stream weights all
/// the while, against the same alone.
void MeasureBesideProduct(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile);

}  // namespace stallcast::capture
