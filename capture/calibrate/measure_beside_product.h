// What the weights on their way to a product do to other kernels.
#pragma once

#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in product.holds_kernel: trains of kernels that scatter two pages, all of it enqueued
/// before, beside products of a decoder's few rows that stream weights all the while, against the
/// same alone.
void MeasureBesideProduct(Stopwatch& watch, hardware::Profile& profile);

}  // namespace stallcast::capture
