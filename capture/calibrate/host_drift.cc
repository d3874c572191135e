#include "capture/calibrate/host_drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

// More than calls differ from one quiet moment to the next.
constexpr double kNoticed = 1.15;

bool Differ(double a, double b) { return std::max(a, b) > kNoticed * std::min(a, b); }

}  // namespace

void SetTypical(std::span<const HostCalls> moments, hardware::Profile& profile) {
  using hardware::Profile;
  constexpr std::pair<double HostCalls::*, double Profile::*> kCalls[] = {
      {&HostCalls::launch, &Profile::host_launch},
      {&HostCalls::event_record, &Profile::host_event_record},
      {&HostCalls::stream_wait, &Profile::host_stream_wait},
      {&HostCalls::copy, &Profile::host_copy_call},
      {&HostCalls::copy_back, &Profile::host_copy_back_call}};
  for (const auto& [call, member] : kCalls) {
    std::vector<double> seconds;
    for (const HostCalls& moment : moments) seconds.push_back(moment.*call);
    profile.*member = Median(std::move(seconds));
  }
}

std::string DriftNote(std::span<const HostCalls> moments) {
  const auto [least, most] = std::ranges::minmax(moments, {}, &HostCalls::launch);
  if (!Differ(least.launch, most.launch)) return "";
  return fmt::format(
      "A launch took {:.1f} us at one moment and {:.1f} us at another: something else used this "
      "host. Calibrate again when it is quiet.",
      least.launch * 1e6, most.launch * 1e6);
}

std::string OtherHostNote(double launch_seconds, const hardware::Profile& profile) {
  if (!Differ(launch_seconds, profile.host_launch)) return "";
  return fmt::format(
      "a launch takes {:.1f} us here, {:.1f} us in the profile {}: calibrate, or give --host-now",
      launch_seconds * 1e6, profile.host_launch * 1e6, profile.name);
}

}  // namespace stallcast::capture
