// Who issues a plan: calls of PyTorch that are counted, and CUDA graphs that host work breaks.
#include <gtest/gtest.h>

#include <variant>

#include "models/plan/graph.h"
#include "models/plan/operators.h"
#include "models/plan/plan.h"
#include "traces/common/error.h"

namespace stallcast::plan {
namespace {

constexpr Norm kNorm{1, 4096};

int Launches(const Plan& plan) {
  int launches = 0;
  for (const Op& op : plan.ops) launches += std::holds_alternative<GraphLaunch>(op.work);
  return launches;
}

TEST(HostTest, IsNamedAsTheCommandLineHasIt) {
  for (const std::string_view name : kHostNames) EXPECT_EQ(Name(HostNamed(name, "test")), name);
  EXPECT_THROW(HostNamed("python", "test"), Error);
}

TEST(OperatorsTest, CountsOneCallAPieceAndTheViewsOfBothEnds) {
  const Copy pages{Direction::kHostToDevice, CopyPath::kPerPiece, 7, 16384};
  OperatorCalls calls = CallsOf(pages);
  EXPECT_EQ(calls[Operator::kCopy], 7);
  EXPECT_EQ(calls[Operator::kSlice], 14);
  EXPECT_EQ(calls.bytes, 16384);
  Copy pageable = pages;
  pageable.host_memory = Copy::HostMemory::kPageable;
  EXPECT_EQ(CallsOf(pageable)[Operator::kCopyPageable], 7);
  const Copy token{Direction::kDeviceToHost, CopyPath::kBulk, 1, 4};
  EXPECT_EQ(CallsOf(token)[Operator::kItem], 1);
}

TEST(OperatorsTest, CountsAnEagerOperatorWithWhatComesBeforeIt) {
  const Eager eager{.op = Operator::kCat, .views = 2, .slices = 3, .modules = 1};
  const OperatorCalls calls = CallsOf(eager);
  EXPECT_EQ(calls[Operator::kCat], 1);
  EXPECT_EQ(calls[Operator::kView], 2);
  EXPECT_EQ(calls[Operator::kSlice], 3);
  EXPECT_EQ(calls[Operator::kModule], 1);
  EXPECT_EQ(ProfiledOperators(calls),
            ProfiledOperators(Operator::kCat) + 2 + 3 * ProfiledOperators(Operator::kSlice));
}

class Graphs : public testing::Test {
 protected:
  PlanBuilder builder_;
  LaneId host_ = builder_.AddHost("host");
  LaneId compute_ = builder_.AddStream("compute", host_, true);

  Plan Finish() {
    builder_.EndGraphs();
    builder_.EndStep(builder_.SyncStream(host_, compute_));
    return builder_.Finish();
  }
};

TEST_F(Graphs, AStepWithoutHostWorkIsOne) {
  builder_.BeginStep(0);
  builder_.BeginGraphs(host_);
  for (int i = 0; i < 5; ++i) builder_.Run(compute_, kNorm);
  const Plan plan = Finish();
  EXPECT_EQ(Launches(plan), 1);
  EXPECT_EQ(GraphsAStep(plan), 1);
  EXPECT_EQ(std::get<GraphLaunch>(plan.ops[0].work).nodes, 5);
  EXPECT_TRUE(WhyNotExecutable(plan).empty());
}

TEST_F(Graphs, HostWorkAndLateCopiesStandBetweenThem) {
  builder_.BeginStep(0);
  builder_.BeginGraphs(host_);
  builder_.Run(compute_, kNorm);
  builder_.SyncStream(host_, compute_);
  const OpId late =
      builder_.Run(compute_, Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 3, 16384});
  builder_.For(Purpose::kChooseUnits).Run(compute_, kNorm);
  builder_.Run(compute_, kNorm);
  const Plan plan = Finish();
  EXPECT_EQ(GraphsAStep(plan), 2);
  EXPECT_FALSE(plan[late].graph_node);
  EXPECT_FALSE(WhyNotExecutable(plan).empty());
  // What an op is for stays with it, whatever is launched before.
  int chosen = 0;
  for (const Op& op : plan.ops) {
    if (op.purpose != Purpose::kChooseUnits) continue;
    EXPECT_TRUE(op.graph_node);
    ++chosen;
  }
  EXPECT_EQ(chosen, 1);
}

TEST_F(Graphs, AStepOfHostWorkAloneLaunchesNone) {
  builder_.BeginStep(0);
  builder_.BeginGraphs(host_);
  builder_.SyncDevice(host_);
  EXPECT_EQ(Launches(Finish()), 0);
}

TEST(PyTorchLaneTest, CallsOfAnExtensionArePlainOnes) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host", Host::kPyTorch);
  const LaneId compute = builder.AddStream("compute", host, true);
  const OpId first = builder.Run(compute, kNorm);
  builder.InExtension(true);
  const OpId second = builder.Run(compute, kNorm);
  builder.InExtension(false);
  const OpId third = builder.Run(compute, kNorm);
  const Plan plan = builder.Finish();
  EXPECT_TRUE(plan[first].from_pytorch);
  EXPECT_FALSE(plan[second].from_pytorch);
  EXPECT_TRUE(plan[third].from_pytorch);
  EXPECT_FALSE(WhyNotExecutable(plan).empty());
}

}  // namespace
}  // namespace stallcast::plan
