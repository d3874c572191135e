#include "models/plan/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/topological_sort.hpp>
#include <boost/range/iterator_range.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

namespace stallcast::plan {
namespace {

// Calls `visit(op, before)` for every op in order; `before` holds what it follows: the previous op
// of its lane, the host op that it is issued after, its waits.
template <typename Visit>
void ForEachOp(const Plan& plan, Visit visit) {
  std::vector<OpId> last(plan.lanes.size(), OpId::kNone);
  std::vector<OpId> before;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    OpId& previous = last[static_cast<size_t>(Index(op.lane))];
    before.assign({previous});
    if (op.issuer != op.lane) before.push_back(last[static_cast<size_t>(Index(op.issuer))]);
    std::erase(before, OpId::kNone);
    const std::span<const OpId> waits = plan.Waits(op);
    before.insert(before.end(), waits.begin(), waits.end());
    previous = OpId{static_cast<int32_t>(i)};
    visit(previous, before);
  }
}

}  // namespace

Graph MakeGraph(const Plan& plan) {
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  edges.reserve(2 * plan.ops.size() + plan.waits.size());
  ForEachOp(plan, [&](OpId op, const std::vector<OpId>& before) {
    for (const OpId from : before) {
      edges.emplace_back(static_cast<uint32_t>(Index(from)), static_cast<uint32_t>(Index(op)));
    }
  });
  return {boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(),
          static_cast<uint32_t>(plan.ops.size())};
}

std::vector<OpId> NeededUntil(const Plan& plan, OpId op) {
  std::vector<OpId> until(plan.lanes.size(), OpId::kNone);
  const auto need = [&](LaneId lane, OpId last) {
    OpId& of_lane = until[static_cast<size_t>(Index(lane))];
    of_lane = std::max(of_lane, last);
  };
  need(plan[op].lane, op);
  for (OpId id = op; id != OpId::kNone; id = OpId{Index(id) - 1}) {
    const Op& needed = plan[id];
    if (id > until[static_cast<size_t>(Index(needed.lane))]) continue;
    need(needed.issuer, id);
    for (const OpId wait : plan.Waits(needed)) need(plan[wait].lane, wait);
  }
  return until;
}

std::vector<OpId> TopologicalOrder(const Graph& graph) {
  std::vector<uint32_t> order;
  order.reserve(num_vertices(graph));
  std::vector<boost::default_color_type> colors(num_vertices(graph));
  try {
    boost::topological_sort(graph, std::back_inserter(order),
                            boost::color_map(boost::make_iterator_property_map(
                                colors.begin(), get(boost::vertex_index, graph))));
  } catch (const boost::not_a_dag&) {
    throw std::logic_error("plan graph: ops wait for each other in a cycle");
  }
  std::vector<OpId> ops(order.size());
  std::transform(order.rbegin(), order.rend(), ops.begin(),
                 [](uint32_t vertex) { return OpId{static_cast<int32_t>(vertex)}; });
  return ops;
}

CriticalPath FindCriticalPath(const Graph& graph, std::span<const Picoseconds> duration) {
  if (duration.size() != num_vertices(graph)) {
    throw std::logic_error("plan graph: one duration an op is needed");
  }
  std::vector<Picoseconds> start(duration.size(), Picoseconds{0});
  std::vector<OpId> before(duration.size(), OpId::kNone);
  OpId last = OpId::kNone;
  CriticalPath path;
  for (const OpId op : TopologicalOrder(graph)) {
    const auto from = static_cast<uint32_t>(Index(op));
    const Picoseconds end = start[from] + duration[from];
    if (last == OpId::kNone || end > path.length) path.length = end, last = op;
    for (const auto edge : boost::make_iterator_range(out_edges(from, graph))) {
      const uint32_t to = target(edge, graph);
      if (before[to] == OpId::kNone || end > start[to]) start[to] = end, before[to] = op;
    }
  }
  for (; last != OpId::kNone; last = before[static_cast<size_t>(Index(last))]) {
    path.ops.push_back(last);
  }
  std::reverse(path.ops.begin(), path.ops.end());
  return path;
}

// boost::transitive_reduction needs a bit for every pair of ops. Ops of a lane are a chain, so the
// latest op of each lane that precedes an op says all that precede it.
std::vector<Wait> ReducedWaits(const Plan& plan) {
  const size_t lanes = plan.lanes.size();
  std::vector<OpId> known(plan.ops.size() * lanes, OpId::kNone);
  const auto row = [&](OpId op) { return &known[static_cast<size_t>(Index(op)) * lanes]; };
  const auto implies = [&](OpId by, OpId op) { return row(by)[Index(plan[op].lane)] >= op; };

  std::vector<Wait> waits;
  ForEachOp(plan, [&](OpId op, const std::vector<OpId>& before) {
    for (const OpId wait : plan.Waits(plan[op])) {
      const bool implied = std::ranges::any_of(
          before, [&](OpId other) { return other != wait && implies(other, wait); });
      if (!implied) waits.push_back({wait, op});
    }
    OpId* mine = row(op);
    for (const OpId from : before) {
      for (size_t lane = 0; lane < lanes; ++lane) {
        mine[lane] = std::max(mine[lane], row(from)[lane]);
      }
    }
    mine[Index(plan[op].lane)] = op;
  });
  return waits;
}

int GraphsAStep(const Plan& plan) {
  std::vector<int> graphs(plan.step_ends.size());
  for (const Op& op : plan.ops) {
    if (op.step >= 0 && std::holds_alternative<GraphLaunch>(op.work)) {
      ++graphs[static_cast<size_t>(op.step)];
    }
  }
  return graphs.empty() ? 0 : *std::ranges::max_element(graphs);
}

std::string WhyNotExecutable(const Plan& plan) {
  const auto from_pytorch = [](const Lane& lane) { return lane.host == Host::kPyTorch; };
  if (std::ranges::any_of(plan.lanes, from_pytorch)) return "no PyTorch program is run";
  const int graphs = GraphsAStep(plan);
  if (graphs < 2) return {};
  return fmt::format("a step is {} CUDA graphs between which its host works", graphs);
}

}  // namespace stallcast::plan
