// Every kernel kind over the shapes that decoders have.
#pragma once

#include <functional>
#include <string>

#include "capture/calibrate/kernel_probe.h"
#include "capture/calibrate/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

struct Timing {
  double seconds = 0;  ///< of one among many that follow one another
  double host = 0;     ///< of the calls that launch it
};
/// Times a probe; `gap` is what passes between two kernels, taken off.
Timing TimeKernel(Stopwatch& watch, const KernelProbe& probe, double gap);

/// Fits all kinds of hardware::KernelKinds() that have a probe here; needs device.gap. A kind
/// without a probe keeps what the profile says. `progress` is called with a kind and the share
/// done.
void MeasureKernels(Stopwatch& watch, hardware::Profile& profile,
                    const std::function<void(const std::string&, double)>& progress);

}  // namespace stallcast::capture
