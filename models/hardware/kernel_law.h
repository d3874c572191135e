// The law of a kernel's time, which calibrations fit and costs follow.
#pragma once

#include <algorithm>

#include "models/hardware/profile.h"
#include "models/plan/work.h"

namespace stallcast::hardware {

/// Seconds beyond fixed_s where the device memory gives it `bandwidth`, bytes/s.
inline double FlowSeconds(const KernelFit& fit, const plan::WorkCounts& counts, double bandwidth) {
  double seconds = std::max(static_cast<double>(counts.device()) / bandwidth,
                            counts.serial_items * fit.serial_s);
  if (fit.flops_rate > 0) seconds = std::max(seconds, counts.flops / fit.flops_rate);
  if (fit.cache_rate > 0) {
    seconds = std::max(seconds, static_cast<double>(counts.cache_read) / fit.cache_rate);
  }
  return seconds;
}

}  // namespace stallcast::hardware
