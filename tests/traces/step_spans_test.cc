#include "traces/step_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stallcast::traces {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr uint16_t kHost = 0, kCompute = 1;

Timeline Lanes() {
  Timeline t;
  t.lanes = {{"host", LaneKind::kHost, false}, {"compute", LaneKind::kStream, true}};
  t.names = {"op"};
  return t;
}

void Add(Timeline& t, int32_t step, uint16_t lane, int64_t start, int64_t end) {
  t.lane.push_back(lane);
  t.op.push_back(t.rows());
  t.step.push_back(step);
  t.layer.push_back(0);
  t.role.push_back(Role::kAttention);
  t.name.push_back(0);
  t.start.emplace_back(start);
  t.duration.emplace_back(end - start);
  t.bytes.push_back(0);
}

StepSpan Span(int64_t start, int64_t end) { return {Picoseconds(start), Picoseconds(end)}; }

TEST(StepSpansTest, BeginWhereTheStepBeforeEndedOnTheComputeLanes) {
  Timeline t = Lanes();
  Add(t, 0, kHost, 10, 20);
  Add(t, 0, kCompute, 15, 40);
  Add(t, 1, kHost, 30, 90);  // queued ahead, and ends where nobody looks
  Add(t, 1, kCompute, 45, 80);
  Add(t, 3, kCompute, 100, 130);  // 2 is not known
  Add(t, -1, kCompute, 0, 500);
  EXPECT_THAT(StepSpans(t),
              ElementsAre(Pair(0, Span(10, 40)), Pair(1, Span(40, 80)), Pair(3, Span(100, 130))));
}

TEST(StepSpansTest, AnyLaneEndsAStepWhereNoneComputes) {
  Timeline t = Lanes();
  t.lanes[kCompute].compute = false;
  Add(t, 0, kCompute, 5, 40);
  Add(t, 0, kHost, 10, 60);
  EXPECT_THAT(StepSpans(t), ElementsAre(Pair(0, Span(5, 60))));
}

TEST(StepSpansTest, AnyLaneEndsAStepWhereTheComputeLanesHoldNothing) {
  Timeline calls = Lanes();
  Add(calls, 0, kHost, 10, 60);
  Add(calls, 1, kHost, 60, 95);
  EXPECT_FALSE(HasCompute(calls));
  EXPECT_THAT(StepSpans(calls), ElementsAre(Pair(0, Span(10, 60)), Pair(1, Span(60, 95))));
}

TEST(StepSpansTest, StepsOutOfOrderHaveNone) {
  Timeline t = Lanes();
  Add(t, 0, kCompute, 0, 100);
  Add(t, 1, kCompute, 20, 90);    // ends before it begins
  Add(t, 2, kCompute, 120, 150);  // begins with its own row: 1 is not there
  Add(t, 4, kCompute, 130, 170);  // inside 2
  Add(t, 5, kHost, 200, 210);     // nothing of it computed
  EXPECT_THAT(StepSpans(t), ElementsAre(Pair(0, Span(0, 100)), Pair(2, Span(120, 150))));
}

}  // namespace
}  // namespace stallcast::traces
