#include "capture/calibrate/host/host_drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

using testing::HasSubstr;

TEST(HostDrift, ACallIsTypicallyItsMedian) {
  const std::vector<HostCalls> moments = {{3e-6, 2e-7, 5e-7, 1.5e-6, 2.0e-6},
                                          {5e-6, 1e-7, 4e-7, 1.1e-6, 2.4e-6},
                                          {4e-6, 9e-7, 6e-7, 1.2e-6, 2.2e-6}};
  hardware::Profile profile;
  SetTypical(moments, profile);
  EXPECT_EQ(profile.host.launch, 4e-6);
  EXPECT_EQ(profile.host.event_record, 2e-7);
  EXPECT_EQ(profile.host.stream_wait, 5e-7);
  EXPECT_EQ(profile.host.copy_call, 1.2e-6);
  EXPECT_EQ(profile.host.copy_back_call, 2.2e-6);
}

TEST(HostDrift, AWaitIsTypicallyItsMedianAndOfAKernelSharedByBothSides) {
  const std::vector<HostWaits> moments = {
      {12e-6, 6.5e-6, 4e-6, 3e-6}, {14e-6, 9e-6, 6e-6, 5e-6}, {11e-6, 6e-6, 5e-6, -1e-6}};
  hardware::Profile profile;
  profile.host.launch = 4e-6;
  profile.host.copy_call = 1e-6;
  profile.host.copy_back_call = 2e-6;
  SetWaits(moments, profile);
  EXPECT_DOUBLE_EQ(profile.handoff(Site::kKernel, Site::kHost, How::kEvent), 4e-6);
  EXPECT_DOUBLE_EQ(profile.handoff(Site::kHost, Site::kKernel, How::kStream), 4e-6);
  EXPECT_EQ(profile.handoff(Site::kHost, Site::kH2D, How::kStream), 6.5e-6);
  EXPECT_EQ(profile.handoff(Site::kH2D, Site::kD2H, How::kStream), 5e-6);
  EXPECT_EQ(profile.handoff(Site::kD2H, Site::kH2D, How::kStream), 3e-6);
  // A machine must be able to be predicted with it, whatever was measured.
  profile.host.launch = 13e-6;
  SetWaits({{{12e-6, 6e-6, -1e-6, -2e-6}}}, profile);
  for (const double seconds : {profile.handoff(Site::kKernel, Site::kHost, How::kEvent),
                               profile.handoff(Site::kHost, Site::kKernel, How::kStream),
                               profile.handoff(Site::kH2D, Site::kD2H, How::kStream),
                               profile.handoff(Site::kD2H, Site::kH2D, How::kStream)}) {
    EXPECT_GT(seconds, 0);
  }
}

TEST(HostDrift, ARecordedCallTakesWhatItTakesMore) {
  hardware::Profile profile;
  SetRecorded({3e-6, 2e-7, 5e-7, 1.5e-6, 2e-6}, {4e-6, 5e-7, 4e-7, 2e-6, 3.5e-6}, profile);
  EXPECT_NEAR(profile.recorder.launch, 1e-6, 1e-15);
  EXPECT_NEAR(profile.recorder.event_record, 3e-7, 1e-15);
  EXPECT_EQ(profile.recorder.stream_wait, 0);  // not less than nothing
  EXPECT_NEAR(profile.recorder.copy_call, 5e-7, 1e-15);
  EXPECT_NEAR(profile.recorder.copy_back_call, 1.5e-6, 1e-15);
}

TEST(HostDrift, IsSaidOfCallsThatDifferByMoreThanTheyVary) {
  const auto note = [](std::vector<double> launches) {
    std::vector<HostCalls> moments;
    for (const double launch : launches) moments.push_back({.launch = launch});
    return DriftNote(moments);
  };
  EXPECT_EQ(note({3e-6}), "");
  EXPECT_EQ(note({3.3e-6, 3e-6, 3.1e-6}), "");
  EXPECT_THAT(note({3.5e-6, 3e-6, 4.4e-6}),
              HasSubstr("3.0 us at one moment and 4.4 us at another (in turn 3.5, 3.0, 4.4)"));
  EXPECT_TRUE(IsDriftNote(note({3e-6, 4e-6})));
  EXPECT_FALSE(IsDriftNote("A virtual machine."));
}

TEST(HostDrift, IsSaidOfAnotherHostThanTheProfiles) {
  hardware::Profile profile = hardware::FindProfile("h200");
  profile.name = "quiet";
  profile.host.launch = 3e-6;
  for (const double close : {2.7e-6, 3e-6, 3.3e-6}) {
    EXPECT_EQ(HostDriftWarning({.launch = close}, profile), "");
  }
  // Slower or faster: either way the prediction is for another host.
  EXPECT_NE(HostDriftWarning({.launch = 2.5e-6}, profile), "");
  EXPECT_THAT(HostDriftWarning({.launch = 4.4e-6}, profile),
              HasSubstr("a launch takes 4.4 us here, 3.0 us in the profile quiet: calibrate"));
  const double gather = GatherSeconds(profile);
  const auto note = [&](double times) {
    return HostDriftWarning({.launch = 3e-6, .gather = times * gather}, profile);
  };
  EXPECT_EQ(note(1.1), "");
  EXPECT_THAT(note(1.4), HasSubstr("a host gather of 2 MiB takes"));
}

TEST(HostDrift, AHostAsItIsTakesForALaunchAndAGatherWhatTheyTook) {
  const hardware::Profile profile = hardware::FindProfile("h200");
  const auto as_now = [&](const HostNow& now) {
    hardware::Profile host = profile;
    for (const auto& [path, value] : OverridesForCurrentHost(now, profile))
      hardware::Set(host, path, value);
    return host;
  };
  for (const double times : {0.7, 1.0, 1.6}) {
    SCOPED_TRACE(times);
    const HostNow now{1.2 * profile.host.launch, times * profile.host.copy_call,
                      times * GatherSeconds(profile)};
    const hardware::Profile host = as_now(now);
    EXPECT_NEAR(host.host.launch, now.launch, 1e-3 * now.launch);
    EXPECT_NEAR(host.host.copy_call, now.copy, 1e-3 * now.copy);
    EXPECT_NEAR(host.host.copy_back_call, times * profile.host.copy_back_call,
                1e-3 * host.host.copy_back_call);
    EXPECT_NEAR(GatherSeconds(host), now.gather, 0.01 * now.gather);
  }
  // Where no gather was timed, they are as slow as calls are.
  const double copy = profile.host.copy_call;
  const hardware::Profile host = as_now({2 * profile.host.launch, copy});
  EXPECT_DOUBLE_EQ(host.host.gather_thread, profile.host.gather_thread / 2);
  // A host on which a thread stood still is no reason to fail.
  EXPECT_GT(as_now({profile.host.launch, copy, 1.0}).host.gather_thread, 0);
}

}  // namespace
}  // namespace stallcast::capture
