#include "models/plan/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace stallcast::plan {
namespace {

constexpr Norm kKernel{.rows = 1, .width = 1};

Plan RandomPlan(uint32_t seed, int ops) {
  std::mt19937 random(seed);
  PlanBuilder builder;
  std::vector<LaneId> hosts = {builder.AddHost("a"), builder.AddHost("b")};
  std::vector<LaneId> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(builder.AddStream("s", hosts[random() % 2]));
  for (int i = 0; i < ops; ++i) {
    std::vector<OpId> waits;
    for (uint32_t w = random() % 4; i > 0 && w > 0; --w) {
      waits.push_back(OpId{static_cast<int32_t>(random() % static_cast<uint32_t>(i))});
    }
    if (random() % 5 == 0) {
      builder.Run(hosts[random() % 2], HostSync{}, waits);
    } else {
      builder.Run(streams[random() % 4], kKernel, waits);
    }
  }
  return builder.Finish();
}

// reach[i][j]: op j follows op i, by brute force over the graph.
std::vector<std::vector<bool>> Reach(const Graph& graph) {
  const size_t n = num_vertices(graph);
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n));
  for (size_t i = n; i-- > 0;) {
    for (auto [edge, end] = out_edges(static_cast<uint32_t>(i), graph); edge != end; ++edge) {
      const size_t j = target(*edge, graph);
      reach[i][j] = true;
      for (size_t k = 0; k < n; ++k) reach[i][k] = reach[i][k] || reach[j][k];
    }
  }
  return reach;
}

TEST(PlanGraphTest, EdgesAreLaneOrderIssueOrderAndWaits) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host");
  const LaneId compute = builder.AddStream("compute", host);
  const LaneId recall = builder.AddStream("recall", host);
  builder.Run(compute, kKernel);             // 0
  builder.SyncStream(host, compute);         // 1, after 0
  builder.Run(recall, kKernel);              // 2, issued after 1
  builder.Run(compute, kKernel, {OpId{2}});  // 3, after 0, 1, 2
  const Graph graph = MakeGraph(builder.Finish());
  std::set<std::pair<int, int>> edges;
  for (auto [edge, end] = boost::edges(graph); edge != end; ++edge) {
    edges.emplace(source(*edge, graph), target(*edge, graph));
  }
  EXPECT_EQ(edges, (std::set<std::pair<int, int>>{{0, 1}, {1, 2}, {0, 3}, {1, 3}, {2, 3}}));
}

TEST(PlanGraphTest, WhatAnOpNeedsIsWhatReachesIt) {
  for (uint32_t seed = 1; seed < 6; ++seed) {
    const Plan plan = RandomPlan(seed, 120);
    const auto reach = Reach(MakeGraph(plan));
    for (int op = 0; op < 120; ++op) {
      const std::vector<OpId> until = NeededUntil(plan, OpId{op});
      for (int other = 0; other < 120; ++other) {
        const LaneId lane = plan[OpId{other}].lane;
        const bool needed = OpId{other} <= until[static_cast<size_t>(Index(lane))];
        EXPECT_EQ(needed, other == op || reach[static_cast<size_t>(other)][static_cast<size_t>(op)])
            << seed << ": " << other << " before " << op;
      }
    }
  }
}

TEST(PlanGraphTest, TopologicalOrderRespectsEveryEdge) {
  const Graph graph = MakeGraph(RandomPlan(1, 300));
  const std::vector<OpId> order = TopologicalOrder(graph);
  ASSERT_EQ(order.size(), 300u);
  std::vector<size_t> place(300);
  for (size_t i = 0; i < 300; ++i) place[static_cast<size_t>(Index(order[i]))] = i;
  for (auto [edge, end] = boost::edges(graph); edge != end; ++edge) {
    EXPECT_LT(place[source(*edge, graph)], place[target(*edge, graph)]);
  }
}

TEST(PlanGraphTest, CriticalPathOfAForkIsItsLongerSide) {
  PlanBuilder builder;
  const LaneId host = builder.AddHost("host");
  const LaneId compute = builder.AddStream("compute", host);
  const LaneId recall = builder.AddStream("recall", host);
  const OpId start = builder.Run(compute, kKernel);
  const OpId copy = builder.Run(recall, kKernel, {start});
  builder.Run(compute, kKernel);
  const OpId join = builder.Run(compute, kKernel, {copy});
  const std::vector<Picoseconds> duration = {Picoseconds{5}, Picoseconds{70}, Picoseconds{60},
                                             Picoseconds{2}};
  const CriticalPath path = FindCriticalPath(MakeGraph(builder.Finish()), duration);
  EXPECT_EQ(path.length, Picoseconds{77});
  EXPECT_EQ(path.ops, (std::vector<OpId>{start, copy, join}));
}

TEST(PlanGraphTest, CriticalPathMatchesBruteForce) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Plan plan = RandomPlan(seed, 60);
    const Graph graph = MakeGraph(plan);
    std::mt19937 random(seed);
    std::vector<Picoseconds> duration(60);
    for (Picoseconds& each : duration) each = Picoseconds{random() % 1000};
    // Ids are a topological order.
    std::vector<Picoseconds> end = duration;
    for (uint32_t i = 0; i < 60; ++i) {
      for (auto [edge, last] = out_edges(i, graph); edge != last; ++edge) {
        const size_t j = target(*edge, graph);
        end[j] = std::max(end[j], end[i] + duration[j]);
      }
    }
    const CriticalPath path = FindCriticalPath(graph, duration);
    EXPECT_EQ(path.length, *std::max_element(end.begin(), end.end()));
    Picoseconds sum{0};
    for (const OpId op : path.ops) sum += duration[static_cast<size_t>(Index(op))];
    EXPECT_EQ(sum, path.length);
    const auto reach = Reach(graph);
    for (size_t i = 1; i < path.ops.size(); ++i) {
      EXPECT_TRUE(reach[static_cast<size_t>(Index(path.ops[i - 1]))]
                       [static_cast<size_t>(Index(path.ops[i]))]);
    }
  }
}

// A wait is drawn exactly if dropping it loses an order that nothing else gives.
TEST(PlanGraphTest, ReducedWaitsAreThoseThatNothingElseImplies) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Plan plan = RandomPlan(seed, 80);
    const Graph graph = MakeGraph(plan);
    const auto reach = Reach(graph);
    std::vector<std::vector<size_t>> before(80);
    for (auto [edge, end] = boost::edges(graph); edge != end; ++edge) {
      before[target(*edge, graph)].push_back(source(*edge, graph));
    }
    std::vector<Wait> expected;
    for (size_t to = 0; to < 80; ++to) {
      for (const OpId wait : plan.Waits(plan.ops[to])) {
        const auto from = static_cast<size_t>(Index(wait));
        const bool implied = std::ranges::any_of(
            before[to], [&](size_t other) { return other != from && reach[from][other]; });
        if (!implied) expected.push_back({wait, OpId{static_cast<int32_t>(to)}});
      }
    }
    EXPECT_EQ(ReducedWaits(plan), expected);
    EXPECT_LT(expected.size(), plan.waits.size());
  }
}

TEST(PlanGraphTest, AnEmptyPlanHasNoPath) {
  const Graph graph = MakeGraph(Plan{});
  EXPECT_TRUE(TopologicalOrder(graph).empty());
  EXPECT_EQ(FindCriticalPath(graph, {}).length, Picoseconds{0});
  EXPECT_THROW(FindCriticalPath(graph, std::vector<Picoseconds>(1)), std::logic_error);
}

}  // namespace
}  // namespace stallcast::plan
