// The discrete-event engine: a plan on a modelled machine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/hardware/cost_model.h"
#include "models/plan/plan.h"
#include "traces/common/units.h"
#include "traces/timeline.h"

namespace stallcast::sim {

struct CompiledPlan;

/// What an op's start waited for last.
enum class CauseKind : uint8_t {
  kNone,    ///< nothing: it starts the run
  kLane,    ///< the previous op of its lane; for host work the previous call or op of the thread
  kWait,    ///< an op of another lane that it waits for
  kIssue,   ///< the host thread that makes its call
  kEngine,  ///< the op before it on the copy engine
};
struct Cause {
  CauseKind kind = CauseKind::kNone;
  plan::OpId op = plan::OpId::kNone;  ///< the op behind it; for kIssue the op itself
};

/// A copy whose first piece went in its call: when the GPU's front end had moved that, and when the
/// copy engine began with the others.
struct CarriedFirst {
  plan::OpId op = plan::OpId::kNone;
  Picoseconds moved{0}, others{0};
};

/// When everything happened, by op id. Times count from the start of the plan.
struct Execution {
  std::vector<Picoseconds> start, end;  ///< on the op's lane
  std::vector<Picoseconds> call_end;    ///< of the host call; equal to end for host work
  std::vector<Cause> cause;
  std::vector<CarriedFirst> carried_first;  ///< by `others`
  Picoseconds end_of_all{0};
  Bytes background_h2d = 0, background_d2h = 0;  ///< that others have copied
};

/// A plan with its costs, ready to be run any number of times.
///
/// Each lane runs its ops in order. A stream op starts when the previous op of its lane has ended
/// (plus the gap), every op it waits for has ended (plus the event latency), and its host call has
/// returned (plus the launch latency); a copy then queues for the engine of its direction, first
/// come first served, by lane among those that come in the same picosecond. A stream that has the
/// engine keeps it for the copies that only follow one another. An op then takes its fixed time
/// alone and shares what it uses after that: the flows that run share each resource max-min fairly
/// in proportion to their weights, none above its own rate (progressive filling). A kernel's fixed
/// time passes slower while a GEMM streams weights. Background traffic queues for the copy engine
/// as any copy; an op that waits for it has begun. Host threads make calls in program order and
/// block only in host work. A call comes after those of other threads that its waits or its
/// stream's order need. It takes its cost, longer after a thread has slept; a small copy to a
/// stream that has nothing left to do goes in its call, and the first of several small pieces: the
/// copy begins with it, and its others queue for the engine when the front end has moved it and
/// handed over, and their first call is made. The same input gives the same result, bit for bit.
class Simulation {
 public:
  /// `plan` must outlive the simulation.
  Simulation(const plan::Plan& plan, const hardware::CostModel& model);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// The nominal run: every cost at its fitted value.
  Execution Run() const;
  /// A sample: device costs times a lognormal factor of mean 1 and the op kind's spread, one draw a
  /// kind (the fit's error, alike for all ops of a kind) from a generator seeded with `seed`.
  Execution Sample(uint64_t seed) const;

  const plan::Plan& plan() const { return plan_; }
  const hardware::CostModel& model() const { return model_; }
  const hardware::OpCost& Cost(plan::OpId id) const;
  /// The same, or of a copy that may go in its call what it then takes.
  const hardware::OpCost& LeastCost(plan::OpId id) const;
  /// The call or host op that the issuing thread did before `id`'s, or kNone.
  plan::OpId PreviousCall(plan::OpId id) const;
  /// When `id`'s call, or host work, began: as soon as the one before, and those of other threads
  /// that come first, had ended.
  Picoseconds CallStart(plan::OpId id, const Execution& execution) const;

 private:
  const plan::Plan& plan_;
  hardware::CostModel model_;
  std::unique_ptr<const CompiledPlan> compiled_;
};

/// The predicted timeline: a row a device op, a row a host call or host op, waits as flows.
traces::Timeline ToTimeline(const Simulation& simulation, const Execution& execution);

}  // namespace stallcast::sim
