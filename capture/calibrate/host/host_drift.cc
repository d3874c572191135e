#include "capture/calibrate/host/host_drift.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/hardware/cost_model.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

constexpr std::string_view kDriftBegins = "A launch took ";

// More than calls differ from one quiet moment to the next.
constexpr double kNoticed = 1.15;

// Times that a host gathers more slowly, or faster, than calibrated, at most.
constexpr double kMost = 10;

// Where a call stands in a profile.
struct Call {
  double HostCalls::*call;
  double hardware::Profile::Host::*typical;
  double hardware::Profile::Recorder::*recorded;
};
using Host = hardware::Profile::Host;
using Recorder = hardware::Profile::Recorder;
constexpr Call kCalls[] = {
    {&HostCalls::launch, &Host::launch, &Recorder::launch},
    {&HostCalls::event_record, &Host::event_record, &Recorder::event_record},
    {&HostCalls::stream_wait, &Host::stream_wait, &Recorder::stream_wait},
    {&HostCalls::copy, &Host::copy_call, &Recorder::copy_call},
    {&HostCalls::copy_back, &Host::copy_back_call, &Recorder::copy_back_call}};

template <class Moment>
double MedianOf(double Moment::*value, std::span<const Moment> moments) {
  std::vector<double> values;
  for (const Moment& moment : moments) values.push_back(moment.*value);
  return Median(std::move(values));
}

bool Differ(double a, double b) { return std::max(a, b) > kNoticed * std::min(a, b); }

}  // namespace

HostCalls Typical(std::span<const HostCalls> moments) {
  HostCalls typical;
  for (const Call& of : kCalls) typical.*of.call = MedianOf(of.call, moments);
  return typical;
}

void SetTypical(std::span<const HostCalls> moments, hardware::Profile& profile) {
  const HostCalls typical = Typical(moments);
  for (const Call& of : kCalls) profile.host.*of.typical = typical.*of.call;
}

void SetWaits(std::span<const HostWaits> moments, hardware::Profile& profile) {
  const auto median = [&](double HostWaits::*wait) { return MedianOf(wait, moments); };
  const double behind_call = median(&HostWaits::kernel) - profile.host.launch;
  profile.handoff(Site::kHost, Site::kKernel, How::kStream) =
      profile.handoff.SetHostSync(std::max(behind_call / 2, 1e-7));
  profile.handoff.SetCopyLaunch(median(&HostWaits::flag));
  profile.handoff(Site::kH2D, Site::kD2H, How::kStream) =
      std::max(median(&HostWaits::to_host_gap), 1e-8);
  profile.handoff(Site::kD2H, Site::kH2D, How::kStream) =
      std::max(median(&HostWaits::to_device_gap), 1e-8);
}

void SetRecorded(const HostCalls& alone, const HostCalls& recorded, hardware::Profile& profile) {
  for (const Call& of : kCalls) {
    profile.recorder.*of.recorded = std::max(recorded.*of.call - alone.*of.call, 0.0);
  }
}

std::string DriftNote(std::span<const HostCalls> moments) {
  const auto [least, most] = std::ranges::minmax(moments, {}, &HostCalls::launch);
  if (!Differ(least.launch, most.launch)) return "";
  std::vector<double> in_turn;
  for (const HostCalls& moment : moments) in_turn.push_back(moment.launch * 1e6);
  return fmt::format(
      "{}{:.1f} us at one moment and {:.1f} us at another (in turn {:.1f}): something else used "
      "this host. Its values are the medians of the {} moments. `stallcast-gpu calibrate` on a "
      "quiet "
      "host has less spread.",
      kDriftBegins, least.launch * 1e6, most.launch * 1e6, fmt::join(in_turn, ", "),
      moments.size());
}

bool IsDriftNote(std::string_view note) { return note.starts_with(kDriftBegins); }

double GatherSeconds(const hardware::Profile& profile) {
  return Seconds(hardware::CostModel(profile).Cost(kGatherNow).Alone());
}

std::string HostDriftWarning(const HostNow& now, const hardware::Profile& profile) {
  const auto differs = [&](const char* what, double here, double there) {
    return fmt::format("a {} takes {:.1f} us here, {:.1f} us in the profile {}", what, here * 1e6,
                       there * 1e6, profile.name);
  };
  std::vector<std::string> differences;
  if (Differ(now.launch, profile.host.launch)) {
    differences.push_back(differs("launch", now.launch, profile.host.launch));
  }
  if (now.gather > 0) {
    const double gather = GatherSeconds(profile);
    if (Differ(now.gather, gather)) {
      differences.push_back(differs("host gather of 2 MiB", now.gather, gather));
    }
  }
  if (differences.empty()) return "";
  return fmt::format("{}: calibrate --host, or give --host-now", fmt::join(differences, ", "));
}

std::vector<std::pair<std::string, std::string>> OverridesForCurrentHost(
    const HostNow& now, hardware::Profile profile) {
  std::vector<std::pair<std::string, std::string>> values;
  const auto set = [&](const char* path, std::string value) {
    hardware::Set(profile, path, value);
    values.emplace_back(path, std::move(value));
  };
  const double slower = profile.host.slower * now.launch / profile.host.launch;
  set("host.slower", fmt::format("{:.3f}", slower));
  const double copies = now.copy / profile.host.copy_call;
  set("host.copy_call", fmt::format("{:.4g}us", now.copy * 1e6));
  set("host.copy_back_call", fmt::format("{:.4g}us", profile.host.copy_back_call * copies * 1e6));
  if (now.gather <= 0) return values;
  // A gather's bytes take twice as long at half the rate, the rest of it does not.
  const double rate = profile.host.gather_thread;
  hardware::Profile half = profile;
  hardware::Set(half, "host.gather_thread", fmt::format("{}B/s", rate / 2));
  const double whole = GatherSeconds(profile), bytes = GatherSeconds(half) - whole;
  const double left = now.gather - (whole - bytes);
  const double times = left > 0 ? bytes / left : kMost;
  set("host.gather_thread",
      fmt::format("{:.3f}GB/s", rate * std::clamp(times, 1 / kMost, kMost) * 1e-9));
  return values;
}

}  // namespace stallcast::capture
