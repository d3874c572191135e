#include "models/plan/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stallcast::plan {
namespace {

using testing::ElementsAre;

constexpr Norm kKernel{.rows = 1, .width = 1};

TEST(FindEventsTest, AnEventIsRecordedBehindWhatAnotherStreamWaitsFor) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host");
  const LaneId compute = builder.AddStream("compute", host), side = builder.AddStream("side", host);
  const OpId first = builder.Run(compute, kKernel);
  builder.Run(compute, kKernel);
  builder.Run(side, kKernel, {first});
  const EventUse use = FindEvents(builder.Finish());
  EXPECT_THAT(use.recorded, ElementsAre(true, false, false));
  EXPECT_THAT(use.whole_stream, ElementsAre(false));
}

TEST(FindEventsTest, AHostThatWaitsForTheLastOpOfItsStreamNeedsNoEvent) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host");
  const LaneId compute = builder.AddStream("compute", host);
  builder.Run(compute, kKernel);
  builder.SyncStream(host, compute);
  builder.Run(compute, kKernel);  // issued later: no part of what the sync waits for
  const EventUse use = FindEvents(builder.Finish());
  EXPECT_THAT(use.recorded, ElementsAre(false, false, false));
  EXPECT_THAT(use.whole_stream, ElementsAre(true));
}

TEST(FindEventsTest, AHostThatWaitsForAnEarlierOpNeedsAnEvent) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host");
  const LaneId compute = builder.AddStream("compute", host);
  const OpId early = builder.Run(compute, kKernel);
  builder.Run(compute, kKernel);
  builder.Run(host, HostSync{}, {early});
  const EventUse use = FindEvents(builder.Finish());
  EXPECT_THAT(use.recorded, ElementsAre(true, false, false));
  EXPECT_THAT(use.whole_stream, ElementsAre(false));
}

TEST(FindEventsTest, AnotherThreadOrOneThatSharesTheStreamNeedsAnEvent) {
  for (const bool shared : {false, true}) {
    PlanBuilder builder;
    const LaneId host = builder.AddHost("host"), other = builder.AddHost("other");
    const LaneId compute = builder.AddStream("compute", host);
    const OpId last = builder.Run(compute, kKernel);
    builder.Run(shared ? host : other, HostSync{}, {last});
    if (shared) builder.Run(compute, kKernel, {}, other);
    const EventUse use = FindEvents(builder.Finish());
    EXPECT_TRUE(use.recorded[0]) << shared;
    EXPECT_THAT(use.whole_stream, ElementsAre(false)) << shared;
  }
}

TEST(FindEventsTest, HostWorkHasNoEvent) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host"), worker = builder.AddHost("worker");
  const LaneId compute = builder.AddStream("compute", host);
  const OpId gathered = builder.Run(worker, HostGather{.pieces = 1, .piece_bytes = 1});
  builder.Run(host, HostHandoff{}, {gathered});
  builder.Run(compute, kKernel);
  const EventUse use = FindEvents(builder.Finish());
  EXPECT_THAT(use.recorded, ElementsAre(false, false, false));
}

}  // namespace
}  // namespace stallcast::plan
