// What is timed once more because the host was not as its profile says.
#pragma once

#include <utility>

namespace stallcast::capture {

/// What `time()` gives, and whether that is from the second time. Where the first is not
/// `as_calibrated` it times once more, which counts if it is so then, whatever either took.
template <class Time, class AsCalibrated>
auto TimedAsCalibrated(const Time& time, const AsCalibrated& as_calibrated) {
  auto first = time();
  if (as_calibrated(first)) return std::pair(std::move(first), false);
  auto second = time();
  if (as_calibrated(second)) return std::pair(std::move(second), true);
  return std::pair(std::move(first), false);
}

}  // namespace stallcast::capture
