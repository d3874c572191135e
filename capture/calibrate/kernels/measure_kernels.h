// Every kernel kind over the shapes that decoders have.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "capture/calibrate/kernels/kernel_probe.h"
#include "capture/calibrate/kernels/product_layers.h"
#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

struct Timing {
  double seconds = 0;  ///< of one among many that follow one another
  /// Of the calls that launch it, over that of an empty kernel at the moment: others may slow the
  /// host for a while.
  double launches = 0;
  /// Seconds that a layer of products behind it takes more than without it; 0: that was not asked.
  double among_products = 0;
  bool recorded = false;  ///< `seconds` is free of gaps
  double drag = 0;        ///< hardware::KernelPoint::drag
};
/// Times a probe; `gap` is what passes between two kernels, taken off.
Timing TimeKernel(Stopwatch& watch, const KernelProbe& probe, double gap);

struct TimedProbe {
  KernelProbe probe;
  Timing timing;
};
using Progress = std::function<void(const std::string& kind, double share)>;

/// Times all probes there are, by the host's and the device's clock; `gap` as TimeKernel() has it.
std::vector<TimedProbe> TimeKernels(Stopwatch& watch, double gap, const Progress& progress);

/// Fills in Timing::among_products, untraced, of the short ones but products and scatters; nothing
/// where the layers do not fit.
void TimeAmongProducts(Stopwatch& watch, ProductLayers& layers, std::vector<TimedProbe>& timed,
                       const Progress& progress);

/// Times the short ones again from a recording, each among the GEMMs of a decode step. Caches are
/// colder there than in a train of one kernel, and the time before its start does not count. The
/// layer's remaining extra time is the kernel's drag. Gathers among the same GEMMs fill in
/// zero_copy.drag, memory.drag_most and memory.drag_share. Without a recording all times stay and
/// nothing drags.
void RecordKernels(Stopwatch& watch, const CopyEnds& ends, ProductLayers& layers,
                   std::vector<TimedProbe>& timed, hardware::Profile& profile,
                   const Progress& progress);

/// Fits all kinds of hardware::KernelKinds() that have a probe here, their calls by host.launch of
/// the profile. A kind without a probe keeps what the profile says.
void FitKernels(const std::vector<TimedProbe>& timed, hardware::Profile& profile);

}  // namespace stallcast::capture
