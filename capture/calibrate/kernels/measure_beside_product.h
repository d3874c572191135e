// What the weights in flight to a GEMM do to the start of other kernels.
#pragma once

#include "capture/calibrate/timing/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in gemm.delays_kernel: trains of kernels that scatter two pages, all of it enqueued
/// before, beside GEMMs of one row that stream weights all the while, against the same alone.
void MeasureBesideProduct(Stopwatch& watch, hardware::Profile& profile);

}  // namespace stallcast::capture
