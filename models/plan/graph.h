// A plan as a graph: what must end before what, its order, its longest chain, and what to draw.
#pragma once

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/plan/plan.h"
#include "traces/common/units.h"

namespace stallcast::plan {

/// One vertex an op, numbered by OpId; an edge from an op to each that cannot start before it ends:
/// the next op of its lane, the ops that wait for it, and, from a host op (or a graph launch), what
/// its thread issues next. Memory is 12 bytes an edge and 8 a vertex.
using Graph =
    boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                       boost::no_property, uint32_t, uint32_t>;

Graph MakeGraph(const Plan& plan);

/// What must end before `op` does, itself included: by lane, all ops up to the returned one (which
/// may be another lane's), or none. One sweep back over the plan, which stores no edges.
std::vector<OpId> NeededUntil(const Plan& plan, OpId op);

/// The ops, each after all that it follows. A cycle is a std::logic_error.
std::vector<OpId> TopologicalOrder(const Graph& graph);

/// CUDA graphs that the step with most of them launches.
int GraphsAStep(const Plan& plan);

/// Why the executor cannot run it on a GPU, beside ops that are predicted only; empty: it can.
std::string WhyNotExecutable(const Plan& plan);

/// The chain of ops that takes longest, in order, with `duration` by OpId. Its length is the least
/// time that the plan can take when no resource is short. Host calls that are no op of their own
/// count only as far as `duration` has them.
struct CriticalPath {
  std::vector<OpId> ops;
  Picoseconds length{0};
};
CriticalPath FindCriticalPath(const Graph& graph, std::span<const Picoseconds> duration);

/// The waits, as (earlier, later), that no other edges imply: the transitive reduction of the graph
/// less the edges of lane and issue order. Time and memory: ops x lanes.
struct Wait {
  OpId from = OpId::kNone, to = OpId::kNone;
  bool operator==(const Wait&) const = default;
};
std::vector<Wait> ReducedWaits(const Plan& plan);

}  // namespace stallcast::plan
