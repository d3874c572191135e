#include "models/plan/events.h"

namespace stallcast::plan {
EventUse FindEvents(const Plan& plan) {
  std::vector<LaneId> issuer(plan.lanes.size(), LaneId::kNone);
  std::vector<bool> shared(plan.lanes.size(), false);
  for (const Op& op : plan.ops) {
    LaneId& first = issuer[At(op.lane)];
    if (first == LaneId::kNone) first = op.issuer;
    if (first != op.issuer) shared[At(op.lane)] = true;
  }
  EventUse use{std::vector<bool>(plan.ops.size(), false),
               std::vector<bool>(plan.waits.size(), false)};
  std::vector<OpId> last(plan.lanes.size(), OpId::kNone);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    for (uint32_t w = op.waits_begin; w < op.waits_begin + op.waits_count; ++w) {
      const OpId wait = plan.waits[w];
      const LaneId lane = plan[wait].lane;
      use.whole_stream[w] = std::holds_alternative<HostSync>(op.work) && last[At(lane)] == wait &&
                            !shared[At(lane)] && issuer[At(lane)] == op.lane;
      if (!use.whole_stream[w] && plan.lanes[At(lane)].kind == traces::LaneKind::kStream) {
        use.recorded[At(wait)] = true;
      }
    }
    last[At(op.lane)] = OpId{static_cast<int32_t>(i)};
  }
  return use;
}

}  // namespace stallcast::plan
