#include <fmt/core.h>

#include <map>
#include <string>

#include "sim/engine.h"

namespace stallcast::sim {
namespace {

using plan::Op;
using plan::OpId;
using traces::Timeline;

constexpr size_t At(OpId id) { return static_cast<size_t>(plan::Index(id)); }

// What a row is called: its kind, and "call " before the host's part of a stream op.
class Names {
 public:
  explicit Names(Timeline& timeline) : timeline_(timeline) {}
  uint32_t Of(std::string name) {
    const auto [entry, fresh] =
        index_.try_emplace(std::move(name), static_cast<uint32_t>(timeline_.names.size()));
    if (fresh) timeline_.names.push_back(entry->first);
    return entry->second;
  }

 private:
  Timeline& timeline_;
  std::map<std::string, uint32_t> index_;
};

}  // namespace

Timeline ToTimeline(const Simulation& simulation, const Execution& execution) {
  const plan::Plan& plan = simulation.plan();
  Timeline timeline;
  timeline.origin = Timeline::Origin::kPredicted;
  timeline.notes = plan.notes;
  for (const plan::Lane& lane : plan.lanes) {
    timeline.lanes.push_back({lane.name, lane.kind, lane.compute});
  }
  Names names(timeline);
  auto add_row = [&](plan::LaneId lane, size_t i, traces::Role role, const std::string& name,
                     Picoseconds start, Picoseconds end, int64_t bytes) {
    const Op& op = plan.ops[i];
    timeline.lane.push_back(static_cast<uint16_t>(plan::Index(lane)));
    timeline.op.push_back(static_cast<int64_t>(i));
    timeline.step.push_back(op.step);
    timeline.layer.push_back(op.layer);
    timeline.role.push_back(role);
    timeline.name.push_back(names.Of(name));
    timeline.start.push_back(start);
    timeline.duration.push_back(end - start);
    timeline.bytes.push_back(bytes);
  };
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const std::string kind(plan::KindName(op.work));
    if (op.lane != op.issuer && !op.graph_node) {
      const OpId id{static_cast<int32_t>(i)};
      add_row(op.issuer, i, traces::Role::kHost, "call " + kind,
              simulation.CallStart(id, execution), execution.call_end[i], 0);
    }
    add_row(op.lane, i, op.role, kind, execution.start[i], execution.end[i],
            plan::MovedBytes(op.work));
    for (OpId wait : plan.Waits(op)) {
      timeline.flows.push_back({static_cast<int64_t>(At(wait)), static_cast<int64_t>(i)});
    }
  }
  return timeline;
}

}  // namespace stallcast::sim
