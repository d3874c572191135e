#include "models/plan/op_timeline.h"

namespace stallcast::plan {

OpTimeline::OpTimeline(const Plan& plan, traces::Timeline::Origin origin) : plan_(plan) {
  timeline.origin = origin;
  for (const Lane& lane : plan.lanes) {
    timeline.lanes.push_back({lane.name, lane.kind, lane.compute});
  }
}

void OpTimeline::AddRun(OpId id, Picoseconds start, Picoseconds end) {
  const Op op = plan_[id];
  Add(id, op, op.lane, op.role, std::string(KindName(op.work)), start, end, MovedBytes(op.work));
}

void OpTimeline::AddCall(OpId id, Picoseconds start, Picoseconds end) {
  const Op op = plan_[id];
  Add(id, op, op.issuer, traces::Role::kHost, "call " + std::string(KindName(op.work)), start, end,
      0);
}

void OpTimeline::Add(OpId id, const Op& op, LaneId lane, traces::Role role, const std::string& name,
                     Picoseconds start, Picoseconds end, Bytes bytes) {
  const auto [entry, fresh] =
      names_.try_emplace(name, static_cast<uint32_t>(timeline.names.size()));
  if (fresh) timeline.names.push_back(name);
  timeline.lane.push_back(static_cast<uint16_t>(Index(lane)));
  timeline.op.push_back(Index(id));
  timeline.step.push_back(op.step);
  timeline.layer.push_back(op.layer);
  timeline.role.push_back(role);
  timeline.name.push_back(entry->second);
  timeline.start.push_back(start);
  timeline.duration.push_back(end - start);
  timeline.bytes.push_back(bytes);
}

}  // namespace stallcast::plan
