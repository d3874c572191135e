#include "capture/calibrate/timing/device_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stallcast::capture {
namespace {

using testing::ElementsAre;
using testing::Key;

void Add(traces::Timeline& timeline, int lane, int32_t step, int64_t op, int64_t start,
         int64_t end) {
  timeline.lane.push_back(static_cast<uint16_t>(lane));
  timeline.step.push_back(step);
  timeline.op.push_back(op);
  timeline.start.emplace_back(start * 1'000'000);
  timeline.duration.emplace_back((end - start) * 1'000'000);
}

TEST(DeviceSpans, ReachFromAnOpsFirstRowOnTheDeviceToItsLast) {
  traces::Trace trace;
  traces::Timeline& timeline = trace.timelines.emplace_back();
  timeline.lanes = {{"host", traces::LaneKind::kHost}, {"stream", traces::LaneKind::kStream}};
  Add(timeline, 0, 1, 7, 0, 5);    // a call
  Add(timeline, 1, 1, 7, 20, 30);  // in any order
  Add(timeline, 1, 1, 7, 10, 15);
  Add(timeline, 1, 1, 8, 40, 41);
  Add(timeline, 1, 2, 7, 50, 60);    // of another step
  Add(timeline, 1, -1, -1, 70, 80);  // of no op
  const auto spans = DeviceSpans(trace);
  ASSERT_THAT(spans, ElementsAre(Key(1), Key(2)));
  ASSERT_THAT(spans.at(1), ElementsAre(Key(7), Key(8)));
  EXPECT_DOUBLE_EQ(spans.at(1).at(7).start, 10e-6);
  EXPECT_DOUBLE_EQ(spans.at(1).at(7).end, 30e-6);
  EXPECT_DOUBLE_EQ(spans.at(1).at(8).end, 41e-6);
  EXPECT_DOUBLE_EQ(spans.at(2).at(7).start, 50e-6);
}

TEST(MeanTime, IsOfAllOpsOfAStepButWhatWasHeldUp) {
  EXPECT_EQ(MeanTime({}), std::nullopt);
  OpSpans ops = {{1, {10e-6, 14e-6}}, {2, {20e-6, 23e-6}}, {5, {0, 5e-6}}};
  ASSERT_TRUE(MeanTime(ops));
  EXPECT_DOUBLE_EQ(*MeanTime(ops), 4e-6);
  ops[6] = {30e-6, 120e-6};
  ops[7] = {200e-6, 204e-6};
  EXPECT_DOUBLE_EQ(*MeanTime(ops), 4e-6);
  EXPECT_DOUBLE_EQ(*MeanTime({{1, {0, 2e-6}}}), 2e-6);
}

}  // namespace
}  // namespace stallcast::capture
