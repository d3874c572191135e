#include "sim/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

using traces::Role;
using traces::Timeline;

constexpr uint16_t kHost = 0, kStream = 1;

// Two lanes; rows are added in any order.
class TimelineMaker {
 public:
  explicit TimelineMaker(Timeline::Origin origin) {
    t_.origin = origin;
    t_.title = "test";
    t_.lanes = {{"host", traces::LaneKind::kHost, false},
                {"compute", traces::LaneKind::kStream, true}};
    t_.names = {"gemm", "copy"};
  }
  TimelineMaker& Add(uint16_t lane, int64_t op, int32_t step, uint32_t name, int64_t start,
                     int64_t duration, int16_t layer = 0) {
    t_.lane.push_back(lane);
    t_.op.push_back(op);
    t_.step.push_back(step);
    t_.layer.push_back(layer);
    t_.role.push_back(name == 0 ? Role::kProjection : Role::kRecall);
    t_.name.push_back(name);
    t_.start.emplace_back(start);
    t_.duration.emplace_back(duration);
    t_.bytes.push_back(0);
    return *this;
  }
  operator const Timeline&() const { return t_; }

 private:
  Timeline t_;
};

TimelineMaker PredictedMaker() { return TimelineMaker(Timeline::Origin::kPredicted); }
TimelineMaker MeasuredMaker() { return TimelineMaker(Timeline::Origin::kMeasured); }

Comparison CompareSides(const Timeline& p, const Timeline& m) {
  return Compare(Predicted<const Timeline*>{&p}, Measured<const Timeline*>{&m});
}

TEST(Compare, MatchesByStepOpAndCallOrRun) {
  const auto p = PredictedMaker()
                     .Add(kHost, 7, 0, 0, 0, 5)
                     .Add(kStream, 7, 0, 0, 10, 100)
                     .Add(kStream, 7, 1, 0, 200, 90);
  const auto m = MeasuredMaker()
                     .Add(kStream, 7, 1, 0, 900, 100)
                     .Add(kStream, 7, 0, 0, 500, 80)
                     .Add(kHost, 7, 0, 0, 400, 4);
  const Comparison c = CompareSides(p, m);
  ASSERT_EQ(c.ops.size(), 3u);
  EXPECT_FALSE(c.ops[0].call);
  EXPECT_EQ(c.ops[0].duration.predicted.value.count(), 100);
  EXPECT_EQ(c.ops[0].duration.measured.value.count(), 80);
  EXPECT_EQ(c.ops[0].duration.residual().count(), 20);
  EXPECT_DOUBLE_EQ(c.ops[0].duration.relative(), 0.25);
  EXPECT_TRUE(c.ops[1].call);
  EXPECT_EQ(c.ops[1].duration.residual().count(), 1);
  EXPECT_EQ(c.ops[2].step, 1);
  EXPECT_EQ(c.ops[2].duration.residual().count(), -10);
}

TEST(Compare, StepTimesRunFromTheEndOfTheStepBefore) {
  const auto p = PredictedMaker()
                     .Add(kHost, 0, 0, 0, 50, 10)
                     .Add(kStream, 0, 0, 0, 100, 50)
                     .Add(kStream, 1, 1, 0, 160, 90);
  const auto m = MeasuredMaker()
                     .Add(kHost, 0, 0, 0, 1000, 10)
                     .Add(kStream, 0, 0, 0, 1040, 60)
                     .Add(kStream, 1, 1, 0, 1150, 70);
  const Comparison c = CompareSides(p, m);
  ASSERT_EQ(c.steps.size(), 2u);
  EXPECT_EQ(c.steps[0].time.predicted.value.count(), 100);  // 50 to 150: the first row on
  EXPECT_EQ(c.steps[0].time.measured.value.count(), 100);
  EXPECT_EQ(c.steps[1].time.predicted.value.count(), 100);  // 150 to 250
  EXPECT_EQ(c.steps[1].time.measured.value.count(), 120);   // 1100 to 1220
  EXPECT_NEAR(c.worst_step_error, 20.0 / 120, 1e-12);
  EXPECT_EQ(c.worst_step, 1);
  EXPECT_EQ(c.median_step_error, 0);  // the lower of two, by nearest rank
}

TEST(Compare, RowsOfOneOpAreOneSpan) {
  const auto p = PredictedMaker().Add(kStream, 3, 0, 1, 0, 30);
  const auto m = MeasuredMaker()
                     .Add(kStream, 3, 0, 1, 100, 5)
                     .Add(kStream, 3, 0, 1, 107, 5)
                     .Add(kStream, 3, 0, 1, 120, 5);
  const Comparison c = CompareSides(p, m);
  ASSERT_EQ(c.ops.size(), 1u);
  EXPECT_EQ(c.ops[0].duration.measured.value.count(), 25);
  EXPECT_TRUE(c.only_measured.value.empty());
  // Whatever their order, and where one ends in the middle of another.
  const auto shuffled = MeasuredMaker()
                            .Add(kStream, 3, 0, 1, 120, 5)
                            .Add(kStream, 3, 0, 1, 100, 30)
                            .Add(kStream, 3, 0, 1, 107, 5);
  EXPECT_EQ(CompareSides(p, shuffled).ops[0].duration.measured.value.count(), 30);
}

TEST(Compare, CountsAndNamesWhatIsOnOneSideOnly) {
  const auto p = PredictedMaker()
                     .Add(kStream, 0, 0, 0, 0, 1)
                     .Add(kStream, 1, 0, 1, 1, 1)
                     .Add(kHost, 1, 0, 1, 0, 1);
  const auto m = MeasuredMaker()
                     .Add(kStream, 0, 0, 0, 0, 1)
                     .Add(kStream, -1, 0, 1, 1, 1)
                     .Add(kStream, 9, 0, 0, 2, 1)
                     .Add(kStream, 0, 1, 0, 3, 1);
  const Comparison c = CompareSides(p, m);
  EXPECT_EQ(c.ops.size(), 1u);
  EXPECT_EQ(c.only_predicted.value,
            (std::map<std::string, int64_t>{{"copy", 1}, {"copy (call)", 1}}));
  EXPECT_EQ(c.only_measured.value,
            (std::map<std::string, int64_t>{{"copy (no op id)", 1}, {"gemm", 2}}));
}

TEST(Compare, HostCallsAloneMatchTheirCalls) {
  const auto p = PredictedMaker()
                     .Add(kHost, 0, 0, 0, 0, 3)
                     .Add(kStream, 0, 0, 0, 5, 40)
                     .Add(kHost, 1, 0, 1, 3, 2)
                     .Add(kStream, 1, 0, 1, 50, 10);
  const auto m = MeasuredMaker().Add(kHost, 0, 0, 0, 0, 4).Add(kHost, 1, 0, 1, 4, 2);
  const Comparison c = CompareSides(p, m);
  ASSERT_EQ(c.ops.size(), 2u);
  for (const MatchedOp& op : c.ops) EXPECT_TRUE(op.call);
  EXPECT_EQ(c.ops[0].duration.residual(), Picoseconds{-1});
  EXPECT_EQ(c.of_other_plans, 0);
  EXPECT_FALSE(c.exposed);
  EXPECT_EQ(c.only_predicted.value.size(), 2u);
  EXPECT_TRUE(c.only_measured.value.empty());
}

TEST(Compare, TellsOpsOfDifferentPlans) {
  const auto p = PredictedMaker()
                     .Add(kStream, 0, 0, 0, 0, 5, 0)
                     .Add(kStream, 1, 0, 0, 10, 5, 1)
                     .Add(kStream, 2, 0, 1, 20, 5, 1)
                     .Add(kStream, 3, 0, 1, 30, 5, 1);
  const auto m = MeasuredMaker()
                     .Add(kStream, 0, 0, 0, 0, 5, 0)
                     .Add(kStream, 1, 0, 0, 10, 5, 2)    // another layer
                     .Add(kStream, 2, 0, 0, 20, 5, 1)    // another role
                     .Add(kStream, 3, 0, 1, 30, 5, -1);  // of no known layer
  EXPECT_EQ(CompareSides(p, m).ops.size(), 4u);
  EXPECT_EQ(CompareSides(p, m).of_other_plans, 2);
  EXPECT_EQ(CompareSides(p, p).of_other_plans, 0);
}

TEST(Compare, WhatASideDoesNotKnowOfAnOpTellsNoOtherPlan) {
  const auto p = PredictedMaker().Add(kStream, 0, 0, 0, 0, 5, 1).Add(kHost, 0, 0, 0, 0, 5, 1);
  // A role that nothing says; and a call that names another layer than its op, which is its run's
  // to tell.
  Timeline m = MeasuredMaker().Add(kStream, 0, 0, 0, 0, 5, 1).Add(kHost, 0, 0, 0, 0, 5);
  m.role[0] = Role::kOther;
  EXPECT_EQ(CompareSides(p, m).ops.size(), 2u);
  EXPECT_EQ(CompareSides(p, m).of_other_plans, 0);
  EXPECT_EQ(CompareSides(m, p).of_other_plans, 0);
}

TEST(Compare, TheWorstStepIsNamedEvenWhereNoneIsOff) {
  const auto p = PredictedMaker().Add(kStream, 0, 3, 0, 0, 5).Add(kStream, 1, 4, 0, 5, 5);
  EXPECT_EQ(CompareSides(p, p).worst_step, 3);
  EXPECT_EQ(CompareSides(p, p).worst_step_error, 0);
}

TEST(Compare, EveryRowIsMatchedOrCounted) {
  auto p = PredictedMaker();
  auto m = MeasuredMaker();
  for (int i = 0; i < 500; ++i) {
    p.Add(i % 3 == 0 ? kHost : kStream, i * 7 % 400, i % 4, i % 2, i * 10, 3);
    m.Add(i % 5 == 0 ? kHost : kStream, i * 11 % 400, i % 4, i % 2, i * 10, 4);
  }
  const Comparison forth = CompareSides(p, m);
  const Comparison back = CompareSides(m, p);
  EXPECT_EQ(forth.ops.size(), back.ops.size());
  EXPECT_EQ(forth.only_predicted.value, back.only_measured.value);
  EXPECT_EQ(forth.only_measured.value, back.only_predicted.value);
  int64_t grouped = 0;
  for (const ResidualSummary& s : Summarize(forth, GroupBy::kLayer)) grouped += s.ops;
  EXPECT_EQ(grouped, std::ssize(forth.ops));
}

TEST(Compare, SummaryQuantilesAreObservedValues) {
  auto p = PredictedMaker();
  auto m = MeasuredMaker();
  // Residuals 1 to 10 in a shuffled order, one of them negative.
  for (int i = 0; i < 10; ++i) {
    const int residual = (i * 7 + 3) % 10 + 1;
    p.Add(kStream, i, 0, 0, 1000 * i, 100 + (residual == 10 ? -10 : residual));
    m.Add(kStream, i, 0, 0, 1000 * i, 100);
  }
  const auto groups = Summarize(CompareSides(p, m), GroupBy::kName);
  ASSERT_EQ(groups.size(), 1u);
  const ResidualSummary& s = groups[0];
  EXPECT_EQ(s.group, "gemm");
  EXPECT_EQ(s.ops, 10);
  EXPECT_EQ(s.median.count(), 5);
  EXPECT_EQ(s.p90.count(), 9);
  EXPECT_EQ(s.worst.count(), 10);
  EXPECT_DOUBLE_EQ(s.median_relative, 0.05);
  EXPECT_DOUBLE_EQ(s.p90_relative, 0.09);
  EXPECT_DOUBLE_EQ(s.worst_relative, 0.1);
  EXPECT_EQ((s.worst_op * 7 + 3) % 10 + 1, 10);
  EXPECT_EQ(s.total.residual().count(), 45 - 10);
}

TEST(Compare, OfAnOddNumberTheMedianIsTheMiddle) {
  auto p = PredictedMaker();
  auto m = MeasuredMaker();
  for (const int residual : {3, 1, 2}) {
    p.Add(kStream, residual, 0, 0, 1000 * residual, 100 + residual);
    m.Add(kStream, residual, 0, 0, 1000 * residual, 100);
  }
  EXPECT_EQ(Summarize(CompareSides(p, m), GroupBy::kName)[0].median.count(), 2);
}

TEST(Compare, TheGroupThatTookLongestComesFirst) {
  const auto p = PredictedMaker().Add(kStream, 0, 0, 0, 0, 90).Add(kStream, 1, 0, 1, 90, 10);
  const auto m = MeasuredMaker().Add(kStream, 0, 0, 0, 0, 20).Add(kStream, 1, 0, 1, 20, 80);
  EXPECT_EQ(Summarize(CompareSides(p, m), GroupBy::kName)[0].group, "copy");
}

TEST(Compare, IdleBeforeIsOfARowsOwnLaneInTheOrderOfTime) {
  // On the stream 0 to 100 with another row inside, then 130 on: idle for 30. The host's rows,
  // which end later, are another lane's.
  const auto p = PredictedMaker()
                     .Add(kStream, 2, 0, 0, 130, 10)
                     .Add(kStream, 0, 0, 0, 0, 100)
                     .Add(kStream, 1, 0, 1, 20, 10)
                     .Add(kHost, 0, 0, 0, 0, 500);
  const Comparison c = CompareSides(p, p);
  ASSERT_EQ(c.ops.size(), 4u);  // of op 0 its run and its call
  for (const MatchedOp& op : c.ops) {
    SCOPED_TRACE(op.op);
    EXPECT_EQ(op.idle.predicted.value.count(), op.op == 2 ? 30 : 0);
  }
}

TEST(Compare, IdleBeforeShowsTheGapOnTheLane) {
  const auto p = PredictedMaker().Add(kStream, 0, 0, 0, 0, 10).Add(kStream, 1, 0, 1, 30, 10);
  const auto m = MeasuredMaker().Add(kStream, 0, 0, 0, 5, 10).Add(kStream, 1, 0, 1, 16, 10);
  const Comparison c = CompareSides(p, m);
  EXPECT_EQ(c.ops[1].idle.predicted.value.count(), 20);
  EXPECT_EQ(c.ops[1].idle.measured.value.count(), 1);
}

TEST(Compare, GroupsCallsApart) {
  const auto p = PredictedMaker().Add(kHost, 0, 0, 0, 0, 1).Add(kStream, 0, 0, 0, 1, 9, -1);
  const Comparison c = CompareSides(p, p);
  const auto by_role = Summarize(c, GroupBy::kRole);
  ASSERT_EQ(by_role.size(), 2u);
  EXPECT_EQ(by_role[0].group, "projection");
  EXPECT_EQ(by_role[1].group, "projection (call)");
  EXPECT_EQ(Summarize(c, GroupBy::kLayer)[0].group, "no layer");
}

TEST(Compare, NothingInCommonIsAnError) {
  const auto p = PredictedMaker().Add(kStream, 0, 0, 0, 0, 1);
  const auto m = MeasuredMaker().Add(kStream, 1, 0, 0, 0, 1);
  EXPECT_THROW(CompareSides(p, m), Error);
  EXPECT_THROW(CompareSides(p, MeasuredMaker()), Error);
}

TEST(Compare, ExposedIsTheMeanOverCommonSteps) {
  // Recall on the compute lane, 20 and 40 predicted, 30 and 60 measured; step 2 is predicted only.
  const auto p = PredictedMaker()
                     .Add(kStream, 0, 0, 0, 0, 100)
                     .Add(kStream, 1, 0, 1, 110, 20)
                     .Add(kStream, 2, 1, 1, 130, 40)
                     .Add(kStream, 3, 2, 1, 170, 900);
  const auto m = MeasuredMaker()
                     .Add(kStream, 0, 0, 0, 1000, 100)
                     .Add(kStream, 1, 0, 1, 1104, 30)
                     .Add(kStream, 2, 1, 1, 1134, 60);
  const Comparison c = CompareSides(p, m);
  ASSERT_TRUE(c.exposed);
  EXPECT_EQ(c.exposed->role(Role::kRecall).predicted.value.count(), 30);
  EXPECT_EQ(c.exposed->role(Role::kRecall).measured.value.count(), 45);
  EXPECT_EQ(c.exposed->nothing.predicted.value.count(), 5);
  EXPECT_EQ(c.exposed->nothing.measured.value.count(), 2);
  EXPECT_EQ(c.exposed->total.residual().count(), 35 - 47);
}

TEST(Compare, EqualTimelinesHaveNoExposedResidual) {
  auto p = PredictedMaker();
  for (int i = 0; i < 300; ++i) {
    p.Add(i % 3 == 0 ? kHost : kStream, i * 7 % 200, i / 100, i % 2, i * 10, 3 + i % 9);
  }
  const Comparison c = CompareSides(p, p);
  ASSERT_TRUE(c.exposed);
  EXPECT_GT(c.exposed->role(Role::kRecall).measured.value.count(), 0);
  for (const TimePair& role : c.exposed->roles) EXPECT_EQ(role.residual().count(), 0);
  EXPECT_EQ(c.exposed->nothing.residual().count(), 0);
  EXPECT_EQ(c.exposed->total.residual().count(), 0);
}

TEST(Compare, ExposedIsNotKnownWithoutACommonStepOrAComputeLane) {
  const auto p = PredictedMaker().Add(kStream, 0, 0, 0, 0, 10).Add(kStream, 9, -1, 0, 10, 10);
  const auto m = MeasuredMaker().Add(kStream, 0, 1, 0, 0, 10).Add(kStream, 9, -1, 0, 10, 10);
  EXPECT_FALSE(CompareSides(p, m).exposed);
  Timeline bare = p;
  bare.lanes[kStream].compute = false;
  EXPECT_FALSE(CompareSides(bare, p).exposed);
  EXPECT_FALSE(CompareSides(p, bare).exposed);
}

TEST(Compare, ExposedGoalIsAShareOrATime) {
  const auto pair = [](int64_t predicted_us, int64_t measured_us) {
    return TimePair{{Picoseconds(predicted_us * 1'000'000)},
                    {Picoseconds(measured_us * 1'000'000)}};
  };
  EXPECT_TRUE(WithinExposedGoal(pair(0, 0)));
  EXPECT_TRUE(WithinExposedGoal(pair(50, 0)));
  EXPECT_FALSE(WithinExposedGoal(pair(51, 0)));
  EXPECT_TRUE(WithinExposedGoal(pair(10, 60)));
  EXPECT_TRUE(WithinExposedGoal(pair(1100, 1000)));
  EXPECT_TRUE(WithinExposedGoal(pair(900, 1000)));
  EXPECT_FALSE(WithinExposedGoal(pair(1101, 1000)));
  EXPECT_FALSE(WithinExposedGoal(pair(899, 1000)));
}

TEST(TimePair, RelativeToNothingMeasured) {
  EXPECT_EQ((TimePair{}.relative()), 0);
  EXPECT_TRUE(std::isinf((TimePair{{Picoseconds(1)}, {Picoseconds(0)}}.relative())));
}

}  // namespace
}  // namespace stallcast::sim
