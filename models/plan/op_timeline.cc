#include "models/plan/op_timeline.h"

namespace stallcast::plan {

OpTimeline::OpTimeline(const Plan& plan, traces::Timeline::Origin origin) : plan_(plan) {
  timeline.origin = origin;
  for (const Lane& lane : plan.lanes) {
    timeline.lanes.push_back({lane.name, lane.kind, lane.compute});
  }
  // A row and a call of each op at most; what is not needed is never touched.
  const size_t rows = 2 * plan.ops.size();
  timeline.lane.reserve(rows);
  timeline.op.reserve(rows);
  timeline.step.reserve(rows);
  timeline.layer.reserve(rows);
  timeline.role.reserve(rows);
  timeline.name.reserve(rows);
  timeline.start.reserve(rows);
  timeline.duration.reserve(rows);
  timeline.bytes.reserve(rows);
}

void OpTimeline::AddRun(OpId id, Picoseconds start, Picoseconds end) {
  AddPart(id, start, end, MovedBytes(plan_[id].work));
}

void OpTimeline::AddPart(OpId id, Picoseconds start, Picoseconds end, Bytes bytes) {
  const Op op = plan_[id];
  Add(id, op, op.lane, op.role, NameOf(run_names_, "", op.work), start, end, bytes);
}

void OpTimeline::AddCall(OpId id, Picoseconds start, Picoseconds end) {
  const Op op = plan_[id];
  Add(id, op, op.issuer, traces::Role::kHost, NameOf(call_names_, "call ", op.work), start, end, 0);
}

uint32_t OpTimeline::NameOf(Names& names, std::string_view before, const Work& work) {
  std::optional<uint32_t>& name = names[work.index()];
  if (!name) {
    name = static_cast<uint32_t>(timeline.names.size());
    timeline.names.push_back(std::string(before) + std::string(KindName(work)));
  }
  return *name;
}

void OpTimeline::Add(OpId id, const Op& op, LaneId lane, traces::Role role, uint32_t name,
                     Picoseconds start, Picoseconds end, Bytes bytes) {
  timeline.lane.push_back(static_cast<uint16_t>(Index(lane)));
  timeline.op.push_back(Index(id));
  timeline.step.push_back(op.step);
  timeline.layer.push_back(op.layer);
  timeline.role.push_back(role);
  timeline.name.push_back(name);
  timeline.start.push_back(start);
  timeline.duration.push_back(end - start);
  timeline.bytes.push_back(bytes);
}

}  // namespace stallcast::plan
