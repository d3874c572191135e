#include "capture/calibrate/host_drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stallcast::capture {
namespace {

using testing::HasSubstr;

TEST(HostDrift, IsSaidOfCallsThatDifferByMoreThanTheyVary) {
  hardware::Profile profile;
  profile.name = "quiet";
  profile.host_launch = 3e-6;
  for (const double close : {2.7e-6, 3e-6, 3.3e-6}) {
    EXPECT_EQ(DriftNote(close, profile), "");
    EXPECT_EQ(OtherHostNote(close, profile), "");
  }
  // Slower or faster: either way the prediction is for another host.
  for (const double far : {2.5e-6, 4.4e-6}) {
    EXPECT_NE(DriftNote(far, profile), "");
    EXPECT_NE(OtherHostNote(far, profile), "");
  }
  EXPECT_THAT(DriftNote(4.4e-6, profile), HasSubstr("3.0 us at the beginning and 4.4 us"));
  EXPECT_THAT(OtherHostNote(4.4e-6, profile),
              HasSubstr("4.4 us here, 3.0 us in the profile quiet"));
}

}  // namespace
}  // namespace stallcast::capture
