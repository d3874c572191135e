// Timing that is repeated once if the host differs from its profile.
#pragma once

#include <utility>

namespace stallcast::capture {

/// The result of `time()`, and whether it is the second one. Times once more if the first result is
/// not `as_calibrated`. The second counts if it is, whichever was faster.
template <class Time, class AsCalibrated>
auto TimedAsCalibrated(const Time& time, const AsCalibrated& as_calibrated) {
  auto first = time();
  if (as_calibrated(first)) return std::pair(std::move(first), false);
  auto second = time();
  if (as_calibrated(second)) return std::pair(std::move(second), true);
  return std::pair(std::move(first), false);
}

}  // namespace stallcast::capture
