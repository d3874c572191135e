#include "capture/calibrate/host_drift.h"

#include <fmt/format.h>

#include <algorithm>

namespace stallcast::capture {
namespace {

// More than calls differ from one quiet moment to the next.
constexpr double kNoticed = 1.15;

bool Differ(double a, double b) { return std::max(a, b) > kNoticed * std::min(a, b); }

}  // namespace

std::string DriftNote(double launch_seconds, const hardware::Profile& profile) {
  if (!Differ(launch_seconds, profile.host_launch)) return "";
  return fmt::format(
      "A launch took {:.1f} us at the beginning and {:.1f} us at the end: something else used this "
      "host. Calibrate again when it is quiet.",
      profile.host_launch * 1e6, launch_seconds * 1e6);
}

std::string OtherHostNote(double launch_seconds, const hardware::Profile& profile) {
  if (!Differ(launch_seconds, profile.host_launch)) return "";
  return fmt::format(
      "a launch takes {:.1f} us here, {:.1f} us in the profile {}: calibrate, or give --host-now",
      launch_seconds * 1e6, profile.host_launch * 1e6, profile.name);
}

}  // namespace stallcast::capture
