#include "capture/gpu/call_timer.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stallcast::capture {

void CallTimer::Begin(const plan::Op&, plan::OpId id) {
  calls_[static_cast<size_t>(plan::Index(id))].begin = Clock::now();
}

void CallTimer::End(const plan::Op&, plan::OpId id) {
  calls_[static_cast<size_t>(plan::Index(id))].end = Clock::now();
}

traces::Timeline CallTimer::Calls(std::string title) const {
  traces::Timeline timeline;
  timeline.origin = traces::Timeline::Origin::kMeasured;
  timeline.title = std::move(title);
  timeline.notes = {"the host's calls alone, of an untraced run"};
  for (const plan::Lane& lane : plan_.lanes) {
    timeline.lanes.push_back({lane.name, lane.kind, lane.compute});
  }
  Clock::time_point first = Clock::time_point::max();
  for (const Call& call : calls_) {
    if (call.end != Clock::time_point{}) first = std::min(first, call.begin);
  }
  const auto picoseconds = [](Clock::duration time) {
    return std::chrono::duration_cast<Picoseconds>(time);
  };
  std::map<std::string, uint32_t> names;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    if (call.end == Clock::time_point{}) continue;  // nodes of a graph have no calls
    const plan::Op& op = plan_.ops[i];
    const bool of_host = op.lane == op.issuer;
    const std::string kind(plan::KindName(op.work));
    const auto [name, fresh] = names.try_emplace(of_host ? kind : "call " + kind,
                                                 static_cast<uint32_t>(timeline.names.size()));
    if (fresh) timeline.names.push_back(name->first);
    timeline.lane.push_back(static_cast<uint16_t>(plan::Index(op.issuer)));
    timeline.op.push_back(static_cast<int64_t>(i));
    timeline.step.push_back(op.step);
    timeline.layer.push_back(op.layer);
    timeline.role.push_back(of_host ? op.role : traces::Role::kHost);
    timeline.name.push_back(name->second);
    timeline.start.push_back(picoseconds(call.begin - first));
    timeline.duration.push_back(picoseconds(call.end - call.begin));
    timeline.bytes.push_back(of_host ? plan::MovedBytes(op.work) : 0);
  }
  return timeline;
}

}  // namespace stallcast::capture
