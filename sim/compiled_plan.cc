#include "sim/compiled_plan.h"

#include <algorithm>
#include <variant>

#include "models/plan/events.h"

namespace stallcast::sim {
namespace {

using plan::OpId;

bool IsCopyToHost(const plan::Op& op) {
  const auto* copy = std::get_if<plan::Copy>(&op.work);
  return copy != nullptr && copy->direction == plan::Direction::kDeviceToHost;
}

Gap GapBetween(const plan::Op& before, const plan::Op& op) {
  if (before.graph_node && op.graph_node) return Gap::kGraph;
  const auto* from = std::get_if<plan::Copy>(&before.work);
  const auto* to = std::get_if<plan::Copy>(&op.work);
  if (from == nullptr && to == nullptr) return Gap::kKernel;
  if (from == nullptr || to == nullptr) return Gap::kCopy;
  if (from->direction == to->direction) return Gap::kCopies;
  return IsCopyToHost(op) ? Gap::kToHost : Gap::kToDevice;
}

}  // namespace

CompiledPlan::CompiledPlan(const plan::Plan& plan, const hardware::CostModel& model)
    : ops(plan.ops) {
  const size_t count = ops.size();
  costs.reserve(ops.works().size());
  for (const plan::Work& work : ops.works()) {
    costs.push_back(model.Cost(work));
    inlined.push_back(model.InlinedCost(work));
    natures.push_back({.copy = std::holds_alternative<plan::Copy>(work),
                       .host_sync = std::holds_alternative<plan::HostSync>(work),
                       .handoff = std::holds_alternative<plan::HostHandoff>(work),
                       .may_inline = inlined.back().has_value()});
  }
  recorded = plan::FindEvents(plan).recorded;
  gap.assign(count, Gap::kNone);
  awaited_copy.assign(count, false);
  dependents.begin.assign(count + 1, 0);

  std::vector<bool> calling(plan.lanes.size());
  for (const plan::Op& op : ops) calling[At(op.issuer)] = true;
  const bool threads = std::ranges::count(calling, true) > 1;
  calls_meet = threads &&
               (model.latencies().beside_call.count() > 0 || model.latencies().contended_more > 1);

  if (threads) called_first.begin.push_back(0);
  std::vector<OpId> last(plan.lanes.size(), OpId::kNone);
  for (size_t i = 0; i < count; ++i) {
    const plan::Op& op = ops[i];
    const OpId id{static_cast<int32_t>(i)};
    if (threads && !IsHostWork(op)) {
      // An event must have been recorded before a stream is told to wait for it, and a stream gets
      // its ops in the plan's order.
      const auto add = [&](OpId first) {
        if (ops[At(first)].issuer != op.issuer) called_first.ids.push_back(first);
      };
      for (const OpId wait : plan.Waits(op)) add(wait);
      if (last[At(op.lane)] != OpId::kNone) add(last[At(op.lane)]);
    }
    if (threads) called_first.begin.push_back(static_cast<uint32_t>(called_first.ids.size()));
    if (!IsHostWork(op)) {
      OpId& previous = last[At(op.lane)];
      if (previous != OpId::kNone) {
        gap[i] = GapBetween(plan[previous], op);
        awaited_copy[At(previous)] = NatureOf(previous).copy && !NatureOf(id).copy;
      }
      previous = id;
    }
    for (OpId wait : plan.Waits(op)) ++dependents.begin[At(wait) + 1];
  }
  for (size_t i = 0; i < count; ++i) dependents.begin[i + 1] += dependents.begin[i];
  dependents.ids.resize(dependents.begin[count]);
  std::vector<uint32_t> fill(dependents.begin.begin(), dependents.begin.end() - 1);
  for (size_t i = 0; i < count; ++i) {
    for (OpId wait : plan.Waits(ops[i])) {
      dependents.ids[fill[At(wait)]++] = OpId{static_cast<int32_t>(i)};
      if (gap[At(wait)] == Gap::kCopy && IsCopyToHost(ops[At(wait)]) &&
          NatureOf(OpId{static_cast<int32_t>(i)}).host_sync) {
        gap[At(wait)] = Gap::kFlag;
      }
    }
  }
}

}  // namespace stallcast::sim
