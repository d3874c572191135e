// A plan in SimGrid (s4u), for comparison with the engine: the same graph, the same times.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <simgrid/s4u.hpp>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine.h"

namespace stallcast::sim {

class SimGridRun;

/// SimGrid's platform for a machine: one link for each shared resource, one host of speed 1 for
/// each lane, and for each set of resources that a flow takes a route over their links. A process
/// can have one only.
class SimGridMachine {
 public:
  /// `simulations`: all that will run, on one machine. Error: what cannot be mapped exactly, which
  /// is a flow that takes more or less than 1 of a resource a unit or has another weight than the
  /// rest, multiprocessors that could run out, and host gathers.
  /// Arguments that are SimGrid's (--cfg=..., --log=...) are obeyed and taken out.
  SimGridMachine(std::span<const Simulation* const> simulations, int* argc, char** argv);

 private:
  friend SimGridRun;
  struct Route {
    simgrid::s4u::Host* from = nullptr;
    simgrid::s4u::Host* to = nullptr;
  };
  /// The resources, and the flow's own rate where that is below all of theirs (otherwise 0).
  using Use = std::pair<std::vector<hardware::Resource>, double>;

  Use UseOf(const hardware::OpCost& flow) const;
  Route AddRoute(const Use& use, const std::vector<simgrid::s4u::Link*>& links);

  simgrid::s4u::Engine engine_;
  simgrid::s4u::NetZone* zone_;
  std::array<double, hardware::kResources> capacity_;
  std::vector<simgrid::s4u::Host*> lane_hosts_;
  std::map<Use, Route> routes_;
  SimGridRun* running_ = nullptr;
};

/// A simulation of the engine, done by SimGrid. Every span of time is a SimGrid activity: an Exec
/// for a host call, for host work, for latency and fixed time; a Comm for what shares. This class
/// only keeps the lanes' order and counts what an op still waits for, and creates an activity when
/// it can start: SimGrid's own dependencies (Activity::add_successor) need all activities to exist
/// beforehand, and its bookkeeping of those is linear in their number for each one that ends.
class SimGridRun {
 public:
  SimGridRun(SimGridMachine& machine, const Simulation& simulation);
  SimGridRun(const SimGridRun&) = delete;
  SimGridRun& operator=(const SimGridRun&) = delete;

  /// Ends of the ops, by id, in seconds from the start.
  std::vector<double> Run();

 private:
  friend SimGridMachine;

  enum class Phase : uint8_t {
    kIdle,
    kFirstCall,   // host: until the op may start
    kRestOfCall,  // host
    kHostWork,
    kArrival,  // of a copy at its engine, or of a GEMM whose weights flow first
    kQueued,   // for the engine
    kFixed,    // latency and fixed time
    kFlow,
    kHandOver,  // for the end of the call
    kTail,      // the last piece, handed over late, or a GEMM's fixed time
  };
  struct Lane {
    size_t index = 0;
    std::vector<plan::OpId> queue;  // a host thread's calls and work, or a stream's ops
    // Of a run.
    size_t next = 0;
    plan::OpId current = plan::OpId::kNone;
    Phase phase = Phase::kIdle;
    bool issuing = false;
    double free_at = 0;
    simgrid::s4u::ActivityPtr activity, ended;
  };
  struct CopyEngine {
    bool busy = false;
    const Lane* kept_for = nullptr;
    std::deque<Lane*> waiting;
  };

  double Now() const { return simgrid::s4u::Engine::get_clock(); }
  void Issue(Lane& host);
  void Begin(Lane& stream);
  void After(Lane& lane, Phase phase, double seconds);
  void Flow(Lane& stream);
  void OnEnd(Lane& lane);
  void OnCallEnd(Lane& host);
  bool OthersHaveCalled(plan::OpId id) const;
  void ReportCalled(plan::OpId id);
  void HandOver(Lane& stream);
  void Release(CopyEngine& engine, Lane& stream, hardware::Engine kind);
  void EndStreamOp(Lane& stream);
  void Complete(plan::OpId id);
  void Satisfy(plan::OpId id, double earliest);

  SimGridMachine& machine_;
  const Simulation& simulation_;
  std::vector<SimGridMachine::Route> route_;           // by op
  std::vector<double> gap_;                            // by op: with what events take of the lane
  std::vector<bool> recorded_;                         // by op: an event is recorded behind it
  std::vector<std::vector<plan::OpId>> dependents_;    // by op
  std::vector<std::vector<plan::OpId>> called_first_;  // by op: other threads' before its call
  std::vector<Lane> lanes_;
  std::array<CopyEngine, 3> engines_;  // by hardware::Engine
  std::vector<uint32_t> missing_;
  std::vector<double> earliest_, call_end_, end_;
  std::vector<bool> called_;
};

/// The largest difference between the ends of ops, in seconds.
double WorstDifference(const Execution& execution, std::span<const double> ends);

/// Kernels and zero-copy reads that took longer than alone, because of what ran beside them.
int64_t SlowedBySharing(const Simulation& simulation, const Execution& execution);

/// The H200's profile with as little changed as SimGrid needs to give the same times: flows that
/// meet have equal weights (all kernels memory-bound at one bandwidth, both-ways rates a thousandth
/// of it), take 1 of a resource a byte, and multiprocessors never run out. Host calls, latencies,
/// gaps, fixed times and link rates are the H200's; memory and links are shared as ever.
hardware::Profile EqualWeights();

}  // namespace stallcast::sim
