#include <utility>

#include "models/plan/op_timeline.h"
#include "sim/engine.h"

namespace stallcast::sim {

traces::Timeline ToTimeline(const Simulation& simulation, const Execution& execution) {
  const plan::Plan& plan = simulation.plan();
  plan::OpTimeline rows(plan, traces::Timeline::Origin::kPredicted);
  rows.timeline.notes = plan.notes;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::OpId id{static_cast<int32_t>(i)};
    const plan::Op& op = plan.ops[i];
    if (op.lane != op.issuer && !op.graph_node) {
      rows.AddCall(id, simulation.CallStart(id, execution), execution.call_end[i]);
    }
    rows.AddRun(id, execution.start[i], execution.end[i]);
    for (const plan::OpId wait : plan.Waits(op)) {
      rows.timeline.flows.push_back({plan::Index(wait), plan::Index(id)});
    }
  }
  return std::move(rows.timeline);
}

}  // namespace stallcast::sim
