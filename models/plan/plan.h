// A plan: machine-independent ops on lanes. The engine times it, the executor runs it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/plan/work.h"
#include "traces/timeline.h"

namespace stallcast::plan {

using traces::Role;

/// Position of an op in its plan. Waits only point to smaller ids, so the order is topological.
enum class OpId : int32_t { kNone = -1 };
enum class LaneId : int16_t { kNone = -1 };
constexpr int32_t Index(OpId id) { return static_cast<int32_t>(id); }
constexpr int16_t Index(LaneId id) { return static_cast<int16_t>(id); }

struct Lane {
  std::string name;
  traces::LaneKind kind = traces::LaneKind::kStream;  ///< kStream or kHost
  bool compute = false;  ///< the stream whose idle time counts as exposed; one a plan
};

struct Op {
  Work work;
  LaneId lane = LaneId::kNone;
  /// The host lane whose thread makes the CUDA call; for host work it equals `lane`.
  LaneId issuer = LaneId::kNone;
  Role role = Role::kOther;
  bool graph_node = false;  ///< launched by an earlier GraphLaunch: the issuer pays nothing
  int16_t layer = -1;
  int32_t step = -1;  ///< -1: prefill
  uint32_t waits_begin = 0;
  uint32_t waits_count = 0;
};

/// Ops in program order. A stream op runs when its lane's previous op, its waits and its issue are
/// done. A host op runs when its lane's previous op or call and its waits are done.
struct Plan {
  std::vector<Lane> lanes;
  std::vector<Op> ops;
  std::vector<OpId> waits;         ///< all ops' waits, see Op::waits_begin
  std::vector<OpId> step_ends;     ///< the op whose end ends step 0, 1, ...
  std::vector<std::string> notes;  ///< what qualifies the plan: projected, not executable, ...

  std::span<const OpId> Waits(const Op& op) const {
    return {waits.data() + op.waits_begin, op.waits_count};
  }
  const Op& operator[](OpId id) const { return ops[static_cast<size_t>(Index(id))]; }
};

/// Builds a plan in program order and keeps its invariants: waits point backwards, host work is on
/// host lanes and nothing else is, steps are numbered from 0 without a hole. Breaking one is a
/// std::logic_error; a batched copy inside a graph, which CUDA cannot capture, is a usage Error.
///
/// A wait that order already implies is left out: on an op of the same lane, on a host op of the
/// issuing thread, or on an op no later than one of its lane that this lane has waited for before.
class PlanBuilder {
 public:
  LaneId AddHost(std::string name);
  /// `issuer` is the host lane that makes the calls unless Run() names another.
  LaneId AddStream(std::string name, LaneId issuer, bool compute = false);

  /// Sets the layer and role of the ops that follow.
  void At(int layer, Role role) { layer_ = layer, role_ = role; }
  void SetRole(Role role) { role_ = role; }

  /// Adds an op to a stream or host lane.
  OpId Run(LaneId lane, const Work& work, std::initializer_list<OpId> waits = {}) {
    return Run(lane, work, std::span<const OpId>(waits.begin(), waits.size()));
  }
  /// kNone among the waits is skipped. `issuer` kNone: the lane's own.
  OpId Run(LaneId lane, const Work& work, std::span<const OpId> waits,
           LaneId issuer = LaneId::kNone);

  /// The host lane blocks until everything issued to `stream` so far is done.
  OpId SyncStream(LaneId host, LaneId stream);
  /// The host lane blocks until everything issued to any stream is done (cudaDeviceSynchronize).
  OpId SyncDevice(LaneId host);

  /// The last op added to a lane, or kNone.
  OpId Last(LaneId lane) const;

  /// Ops from now on belong to step `step`: 0, then 1, ...
  void BeginStep(int step);
  /// `host` launches a CUDA graph now; until EndGraph() the ops that it would issue are its nodes.
  void BeginGraph(LaneId host);
  void EndGraph();
  /// `op` ends the current step.
  void EndStep(OpId op);
  /// Makes room for `steps` steps like those so far: growing by copies would take twice the memory.
  void ReserveSteps(int steps);

  int64_t size() const { return static_cast<int64_t>(plan_.ops.size()); }
  /// The plan; the builder is empty afterwards.
  Plan Finish();

 private:
  LaneId AddLane(Lane lane, LaneId issuer);
  bool IsLane(LaneId lane) const;
  bool IsHost(LaneId lane) const;

  Plan plan_;
  std::vector<OpId> last_;               // by lane
  std::vector<LaneId> issuer_;           // by lane
  std::vector<std::vector<OpId>> seen_;  // [lane][other]: the latest op of `other` waited for
  int layer_ = -1;
  int step_ = -1;
  Role role_ = Role::kOther;
  OpId graph_ = OpId::kNone;
};

}  // namespace stallcast::plan
