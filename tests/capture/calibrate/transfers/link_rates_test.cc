#include "capture/calibrate/transfers/link_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stallcast::capture {
namespace {

using testing::HasSubstr;

// RepeatedHostMeasurements of which each has some rate lowered by what others copied.
const std::vector<LinkRates> kMoments = {
    {52e9, 54e9, 47e9, 51e9}, {55e9, 50e9, 51e9, 49e9}, {54e9, 54.5e9, 40e9, 40e9}};

TEST(LinkRates, WhatALinkCarriesIsTheMostThatItDid) {
  hardware::Profile profile;
  profile.link.h2d = 53e9, profile.link.d2h = 54.8e9;
  SetLink(kMoments, profile);
  EXPECT_EQ(profile.link.h2d, 55e9);
  EXPECT_EQ(profile.link.d2h, 54.8e9);
  EXPECT_EQ(profile.link.both_h2d, 51e9);
  EXPECT_EQ(profile.link.both_d2h, 51e9);
}

TEST(LinkRates, BothWaysAtOnceNoneIsFasterThanAlone) {
  hardware::Profile profile;
  SetLink(std::vector<LinkRates>{{50e9, 50e9, 50.2e9, 49e9}}, profile);
  EXPECT_EQ(profile.link.both_h2d, 50e9);
  EXPECT_EQ(profile.link.both_d2h, 49e9);
}

TEST(LinkRates, IsSaidOfALinkThatOthersUsed) {
  EXPECT_THAT(LinkDriftNote(kMoments), HasSubstr("52.0 GB/s to the GPU at one moment and 55.0"));
  EXPECT_EQ(LinkDriftNote(std::vector<LinkRates>{{54.2e9}, {55e9}}), "");
  hardware::Profile profile;
  profile.name = "quiet";
  profile.link.h2d = 55e9;
  EXPECT_THAT(OtherLinkNote(47.1e9, profile),
              HasSubstr("carries 47.1 GB/s here, 55.0 in the profile quiet"));
  for (const double close : {54e9, 55e9, 80e9}) EXPECT_EQ(OtherLinkNote(close, profile), "");
}

}  // namespace
}  // namespace stallcast::capture
