// Whether a host is still, or at all, as fast as a profile says: its calls cost differently on each
// machine, and more while others use the same one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/hardware/profile.h"
#include "models/plan/work.h"

namespace stallcast::capture {

/// What CUDA calls cost the host at some moment, s.
struct HostCalls {
  double launch = 0, event_record = 0, stream_wait = 0;
  double copy = 0;       ///< to the GPU, one of many pages
  double copy_back = 0;  ///< to the host, behind a kernel
};

/// What a host waits for behind its calls, s, the stream being idle before.
struct HostWaits {
  double kernel = 0;  ///< from the launch of an empty kernel until the host knows of its end
  double flag = 0;    ///< the same of a copy of some bytes to the host
  /// What a copy to the host comes later behind one to the GPU than behind one to the host, and the
  /// other way round.
  double to_host_gap = 0, to_device_gap = 0;
};

/// The median of each call over the moments, of which there is one at least.
HostCalls Typical(std::span<const HostCalls> moments);

/// Typical() as host.launch, event_record, stream_wait, copy_call and copy_back_call
/// of `profile`.
void SetTypical(std::span<const HostCalls> moments, hardware::Profile& profile);

/// Fills in waits by their medians over at least one moment. `kernel` less host.launch becomes the
/// hand-off to the host and the launch latency, half each; MeasureGaps() divides it better. `flag`
/// becomes the launch latency of copies, and the two gaps the hand-offs between copies of opposite
/// directions.
void SetWaits(std::span<const HostWaits> moments, hardware::Profile& profile);

/// What each call takes more while it is recorded than alone: recorder.launch, event_record,
/// stream_wait, copy_call and copy_back_call of `profile`.
void SetRecorded(const HostCalls& alone, const HostCalls& recorded, hardware::Profile& profile);

/// What to say of a calibration in whose course launches differed; empty while they are within
/// 15 %.
std::string DriftNote(std::span<const HostCalls> moments);
/// Whether a profile's note is one of those.
bool IsDriftNote(std::string_view note);

/// How fast a host is around a measured run.
struct HostNow {
  double launch = 0;  ///< s
  double copy = 0;    ///< s, as HostCalls::copy
  double gather = 0;  ///< s of kGatherNow; 0: not timed
};
/// A layer's recall by four threads.
inline constexpr plan::HostGather kGatherNow{128, 16384, 4};
/// Seconds of kGatherNow by threads that are awake.
double GatherSeconds(const hardware::Profile& profile);

/// The same of a host beside a measured run that is predicted with `profile`.
std::string HostDriftWarning(const HostNow& now, const hardware::Profile& profile);
/// Values of `profile` with which such a host is predicted: host.slower by the launch, as copies
/// slow more than launches (as its 1.7th power from one machine to another) host.copy_call and
/// copy_back_call, and host.gather_thread where a gather was timed.
std::vector<std::pair<std::string, std::string>> OverridesForCurrentHost(const HostNow& now,
                                                                         hardware::Profile profile);

}  // namespace stallcast::capture
