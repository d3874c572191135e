// A plan: machine-independent ops on lanes. The engine times it, the executor runs it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/plan/host.h"
#include "models/plan/op_table.h"
#include "models/plan/work.h"
#include "traces/timeline.h"

namespace stallcast::plan {

struct Lane {
  std::string name;
  traces::LaneKind kind = traces::LaneKind::kStream;  ///< kStream or kHost
  bool compute = false;    ///< the stream whose idle time counts as exposed; one a plan
  Host host = Host::kCpp;  ///< of a kHost lane: how its calls are made, kCpp or kPyTorch
};

/// Ops in program order. A stream op runs when its lane's previous op, its waits and its issue are
/// done. A host op runs when its lane's previous op or call and its waits are done.
struct Plan {
  std::vector<Lane> lanes;
  OpTable ops;
  std::vector<OpId> waits;         ///< all ops' waits, see Op::waits_begin
  std::vector<OpId> step_ends;     ///< the op whose end ends step 0, 1, ...
  std::vector<std::string> notes;  ///< what qualifies the plan: projected, not executable, ...

  std::span<const OpId> Waits(const Op& op) const {
    return {waits.data() + op.waits_begin, op.waits_count};
  }
  Op operator[](OpId id) const { return ops[static_cast<size_t>(Index(id))]; }
};

/// Builds a plan in program order and keeps its invariants: waits point backwards, host work is on
/// host lanes and nothing else is, steps are numbered from 0 without a hole. Breaking one is a
/// std::logic_error; a batched copy inside a graph, which CUDA cannot capture, is a usage Error.
///
/// A wait that order already implies is left out: on an op of the same lane, on a host op of the
/// issuing thread, or on an op no later than one of its lane that this lane has waited for before.
class PlanBuilder {
 public:
  LaneId AddHost(std::string name, Host host = Host::kCpp);
  /// `issuer` is the host lane that makes the calls unless Run() names another.
  LaneId AddStream(std::string name, LaneId issuer, bool compute = false);

  /// What At() calls layer i is layer names[i] of the model; without names it is layer i.
  void NameLayers(std::vector<int> names) { layer_names_ = std::move(names); }
  /// Sets the layer and role of the ops that follow.
  void At(int layer, Role role) {
    const bool named = layer >= 0 && static_cast<size_t>(layer) < layer_names_.size();
    layer_ = named ? layer_names_[static_cast<size_t>(layer)] : layer;
    role_ = role;
  }
  void SetRole(Role role) { role_ = role; }
  Role role() const { return role_; }
  /// What follows is issued by a C++ extension of a PyTorch program, by plain CUDA calls; or not.
  void InExtension(bool in_extension) { in_extension_ = in_extension; }
  /// What the next op alone is for: For(purpose).Run(...).
  PlanBuilder& For(Purpose purpose) {
    purpose_ = purpose;
    return *this;
  }

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
  /// Until EndGraphs() the ops that `host` would issue are nodes of CUDA graphs, as few as
  /// possible: its own work, and copies whose number is known late or that no graph can hold, stand
  /// between.
  void BeginGraphs(LaneId host);
  void EndGraphs();
  /// `op` ends the current step.
  void EndStep(OpId op);
  /// Makes room for `steps` steps like those so far: growing by copies would take twice the memory.
  void ReserveSteps(int steps);

  int64_t size() const { return static_cast<int64_t>(plan_.ops.size()); }
  /// The plan; the builder is empty afterwards.
  Plan Finish();

 private:
  LaneId AddLane(Lane lane, LaneId issuer);
  void BreakGraphs(LaneId issuer, const Work& work);
  bool IsLane(LaneId lane) const;
  bool IsHost(LaneId lane) const;
  uint32_t WorkId(const Work& work);

  struct WorkHash {
    size_t operator()(const Work& work) const;
  };

  Plan plan_;
  std::unordered_map<Work, uint32_t, WorkHash> work_ids_;
  std::vector<OpId> last_;               // by lane
  std::vector<LaneId> issuer_;           // by lane
  std::vector<std::vector<OpId>> seen_;  // [lane][other]: the latest op of `other` waited for
  std::vector<int> layer_names_;
  int layer_ = -1;
  int step_ = -1;
  Role role_ = Role::kOther;
  Purpose purpose_ = Purpose::kOnly;
  bool in_extension_ = false;
  OpId graph_ = OpId::kNone;
  int64_t graph_nodes_ = 0;
  LaneId graphs_of_ = LaneId::kNone;  // between BeginGraphs() and EndGraphs()
};

}  // namespace stallcast::plan
