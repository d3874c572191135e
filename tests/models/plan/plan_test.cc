#include "models/plan/plan.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::plan {
namespace {

constexpr Norm kKernel{.rows = 1, .width = 1};
constexpr Copy kCopy{.pieces = 1, .piece_bytes = 1};

std::vector<OpId> WaitsOf(const Plan& plan, OpId op) {
  const auto waits = plan.Waits(plan[op]);
  return {waits.begin(), waits.end()};
}

class PlanTest : public testing::Test {
 protected:
  PlanBuilder builder_;
  LaneId host_ = builder_.AddHost("host");
  LaneId worker_ = builder_.AddHost("worker");
  LaneId compute_ = builder_.AddStream("compute", host_, true);
  LaneId recall_ = builder_.AddStream("recall", host_);
};

TEST_F(PlanTest, OpsCarryWhereTheyBelong) {
  builder_.BeginStep(0);
  builder_.At(3, Role::kProjection);
  const OpId first = builder_.Run(compute_, kKernel);
  builder_.SetRole(Role::kRecall);
  const OpId second = builder_.Run(recall_, kCopy, std::vector<OpId>{first}, worker_);
  builder_.EndStep(second);
  EXPECT_EQ(builder_.Last(recall_), second);
  EXPECT_EQ(builder_.Last(worker_), OpId::kNone);
  const Plan plan = builder_.Finish();
  EXPECT_EQ(plan[first].layer, 3);
  EXPECT_EQ(plan[first].step, 0);
  EXPECT_EQ(plan[first].role, Role::kProjection);
  EXPECT_EQ(plan[first].issuer, host_);
  EXPECT_EQ(plan[second].role, Role::kRecall);
  EXPECT_EQ(plan[second].issuer, worker_);
  EXPECT_EQ(WaitsOf(plan, second), std::vector<OpId>{first});
  EXPECT_EQ(plan.step_ends, std::vector<OpId>{second});
  EXPECT_TRUE(plan.lanes[static_cast<size_t>(Index(compute_))].compute);
}

TEST_F(PlanTest, LeavesOutWaitsThatOrderImplies) {
  const OpId copy1 = builder_.Run(recall_, kCopy);
  const OpId copy2 = builder_.Run(recall_, kCopy);
  const OpId gather = builder_.Run(host_, HostGather{});
  const OpId other_gather = builder_.Run(worker_, HostGather{});
  const OpId a = builder_.Run(compute_, kKernel, {OpId::kNone, copy2});
  // Same lane, an earlier op of a lane already waited for, host work of the issuer.
  const OpId b = builder_.Run(compute_, kKernel, {a, copy1, copy2, gather});
  // Another thread's work is not implied.
  const OpId c = builder_.Run(compute_, kKernel, {other_gather});
  const Plan plan = builder_.Finish();
  EXPECT_EQ(WaitsOf(plan, a), std::vector<OpId>{copy2});
  EXPECT_EQ(WaitsOf(plan, b), std::vector<OpId>{});
  EXPECT_EQ(WaitsOf(plan, c), std::vector<OpId>{other_gather});
}

TEST_F(PlanTest, SyncsWaitForWhatWasIssued) {
  const OpId kernel = builder_.Run(compute_, kKernel);
  const OpId copy = builder_.Run(recall_, kCopy);
  const OpId stream_sync = builder_.SyncStream(host_, recall_);
  const OpId device_sync = builder_.SyncDevice(host_);
  const Plan plan = builder_.Finish();
  EXPECT_EQ(WaitsOf(plan, stream_sync), std::vector<OpId>{copy});
  EXPECT_EQ(WaitsOf(plan, device_sync), std::vector<OpId>{kernel});
}

TEST_F(PlanTest, GraphsHoldWhatTheirHostWouldIssue) {
  const OpId before = builder_.Run(compute_, kKernel);
  builder_.BeginGraph(host_);
  const OpId node = builder_.Run(compute_, kKernel);
  const OpId foreign = builder_.Run(recall_, kCopy, std::vector<OpId>{}, worker_);
  const OpId node2 = builder_.Run(recall_, kCopy, {node});
  builder_.EndGraph();
  const OpId after = builder_.Run(compute_, kKernel);
  const Plan plan = builder_.Finish();
  const OpId launch{Index(before) + 1};
  EXPECT_EQ(std::get<GraphLaunch>(plan[launch].work).nodes, 2);
  EXPECT_EQ(plan[launch].lane, host_);
  EXPECT_EQ(plan[launch].role, Role::kHost);
  EXPECT_TRUE(plan[node].graph_node);
  EXPECT_TRUE(plan[node2].graph_node);
  EXPECT_FALSE(plan[foreign].graph_node);
  EXPECT_FALSE(plan[before].graph_node);
  EXPECT_FALSE(plan[after].graph_node);
}

TEST_F(PlanTest, RefusesWhatCudaCannotCapture) {
  builder_.BeginGraph(host_);
  EXPECT_THROW(builder_.Run(recall_, Copy{.path = CopyPath::kBatched, .pieces = 1}), Error);
  EXPECT_THROW(builder_.SyncStream(host_, compute_), std::logic_error);
  EXPECT_THROW(builder_.BeginGraph(host_), std::logic_error);
  EXPECT_THROW(builder_.BeginStep(0), std::logic_error);
  EXPECT_THROW(builder_.Finish(), std::logic_error);
}

TEST_F(PlanTest, RefusesBrokenPlans) {
  const OpId op = builder_.Run(compute_, kKernel);
  EXPECT_THROW(builder_.Run(compute_, HostSync{}), std::logic_error);
  EXPECT_THROW(builder_.Run(host_, kKernel), std::logic_error);
  EXPECT_THROW(builder_.Run(LaneId{9}, kKernel), std::logic_error);
  EXPECT_THROW(builder_.Run(LaneId::kNone, kKernel), std::logic_error);
  EXPECT_THROW(builder_.Run(recall_, kCopy, {OpId{Index(op) + 1}}), std::logic_error);
  EXPECT_THROW(builder_.Run(recall_, kCopy, std::vector<OpId>{}, compute_), std::logic_error);
  EXPECT_THROW(builder_.Run(host_, HostSync{}, std::vector<OpId>{}, worker_), std::logic_error);
  EXPECT_THROW(builder_.AddStream("orphan", compute_), std::logic_error);
  EXPECT_THROW(builder_.AddStream("second compute", host_, true), std::logic_error);
  EXPECT_THROW(builder_.EndGraph(), std::logic_error);
  EXPECT_THROW(builder_.EndStep(op), std::logic_error);
  EXPECT_THROW(builder_.BeginStep(1), std::logic_error);
  EXPECT_THROW(builder_.Last(LaneId{9}), std::logic_error);
  EXPECT_EQ(builder_.size(), 1);
  builder_.BeginStep(0);
  EXPECT_THROW(builder_.EndStep(op), std::logic_error);  // of no step
}

}  // namespace
}  // namespace stallcast::plan
