#include "capture/gpu/call_timer.h"

#include <gtest/gtest.h>

#include <thread>

#include "models/plan/plan.h"

namespace stallcast::capture {
namespace {

using namespace std::chrono_literals;

TEST(CallTimer, TellsCallsAndHostOpsAsAPredictionDoes) {
  plan::PlanBuilder builder;
  const plan::LaneId host = builder.AddHost("host");
  const plan::LaneId stream = builder.AddStream("compute", host, true);
  const plan::OpId kernel = builder.Run(stream, plan::Layout{1, 1000});
  const plan::OpId node = builder.Run(stream, plan::Layout{1, 1000});
  const plan::OpId sync = builder.SyncStream(host, stream);
  const plan::Plan plan = builder.Finish();

  CallTimer timer(plan);
  timer.Begin(plan[kernel], kernel);
  std::this_thread::sleep_for(2ms);
  timer.End(plan[kernel], kernel);
  timer.Begin(plan[sync], sync);
  timer.End(plan[sync], sync);
  const traces::Timeline calls = timer.Calls("a run");

  EXPECT_EQ(calls.origin, traces::Timeline::Origin::kMeasured);
  ASSERT_EQ(calls.rows(), 2) << "what is not called has no row: " << plan::Index(node);
  EXPECT_EQ(calls.names[calls.name[0]], "call layout");
  EXPECT_EQ(calls.role[0], traces::Role::kHost);
  EXPECT_EQ(calls.op[0], plan::Index(kernel));
  EXPECT_EQ(calls.start[0], Picoseconds{0});
  EXPECT_GE(calls.duration[0], 2ms);
  EXPECT_EQ(calls.names[calls.name[1]], "host_sync");
  EXPECT_EQ(calls.role[1], plan[sync].role);
  EXPECT_EQ(calls.op[1], plan::Index(sync));
  EXPECT_GE(calls.start[1], calls.duration[0]);
  for (int64_t row = 0; row < calls.rows(); ++row) {
    EXPECT_EQ(calls.lanes[calls.lane[row]].kind, traces::LaneKind::kHost);
  }
}

}  // namespace
}  // namespace stallcast::capture
