#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "models/plan/op_timeline.h"
#include "sim/engine.h"

namespace stallcast::sim {

traces::Timeline ToTimeline(const Simulation& simulation, const Execution& execution) {
  const plan::Plan& plan = simulation.plan();
  plan::OpTimeline rows(plan, traces::Timeline::Origin::kPredicted);
  rows.timeline.notes = plan.notes;
  std::vector<CarriedFirst> carried_first = execution.carried_first;
  std::ranges::sort(carried_first, {}, &CarriedFirst::op);
  auto carried = carried_first.begin();
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::OpId id{static_cast<int32_t>(i)};
    const plan::Op& op = plan.ops[i];
    if (op.lane != op.issuer && !op.graph_node) {
      rows.AddCall(id, simulation.CallStart(id, execution), execution.call_end[i]);
    }
    if (carried != carried_first.end() && carried->op == id) {
      const Bytes first = std::get<plan::Copy>(op.work).piece_bytes;
      rows.AddPart(id, execution.start[i], carried->moved, first);
      rows.AddPart(id, carried->others, execution.end[i], plan::MovedBytes(op.work) - first);
      ++carried;
    } else {
      rows.AddRun(id, execution.start[i], execution.end[i]);
    }
    for (const plan::OpId wait : plan.Waits(op)) {
      rows.timeline.flows.push_back({plan::Index(wait), plan::Index(id)});
    }
  }
  return std::move(rows.timeline);
}

}  // namespace stallcast::sim
