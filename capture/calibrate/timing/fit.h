// Least squares for calibrations: few parameters, none negative, relative errors.
#pragma once

#include <span>
#include <vector>

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// y about a + b x with a, b >= 0 and the least sum of squared relative errors. At least two
/// points with positive y.
struct Line {
  double a = 0, b = 0;
  /// Root mean square of the relative errors.
  double spread = 0;
};
Line FitLine(std::span<const double> x, std::span<const double> y);

/// y where it is at least `least` and all before it, else the largest of those: threads that have
/// slept longer do not wake sooner.
std::vector<double> MonotoneEnvelope(std::vector<double> y, double least);

/// A kernel as it was timed.
struct TimedWork {
  plan::Work work;
  double seconds = 0;
  double host = 0;  ///< of each kernel launched
  double drag = 0;  ///< hardware::KernelPoint::drag
};

/// The law of a kind through its timed works, each with its factor: fixed time and bandwidth from
/// all of them, the rate of operations from those that the bandwidth does not explain, the time of
/// a serial item likewise. `spread` is that of leaving each point out and predicting it from the
/// others. At least two works.
hardware::KernelFit FitKernel(std::span<const TimedWork> timed);

}  // namespace stallcast::capture
