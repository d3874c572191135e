#include "sim/compiled_plan.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "models/plan/events.h"

namespace stallcast::sim {
namespace {

using plan::LaneId;
using plan::OpId;

hardware::Site SiteOf(const plan::Work& work) {
  if (IsHostWork(work)) return hardware::Site::kHost;
  const auto* copy = std::get_if<plan::Copy>(&work);
  if (copy == nullptr) return hardware::Site::kKernel;
  return copy->direction == plan::Direction::kHostToDevice ? hardware::Site::kH2D
                                                           : hardware::Site::kD2H;
}

}  // namespace

CompiledPlan::CompiledPlan(const plan::Plan& plan, const hardware::CostModel& model)
    : ops(plan.ops) {
  const size_t count = ops.size();
  AddCosts(model, plan::Host::kCpp);
  const auto of_pytorch = [](const plan::Lane& lane) { return lane.host == plan::Host::kPyTorch; };
  if (std::ranges::any_of(plan.lanes, of_pytorch)) {
    AddCosts(model, plan::Host::kPyTorch);
    from_pytorch.resize(count);
    enters.resize(count);
    std::vector<LaneId> current(plan.lanes.size(), LaneId::kNone);  // by thread
    for (size_t i = 0; i < count; ++i) {
      const plan::Op op = ops[i];
      from_pytorch[i] = op.from_pytorch;
      if (!from_pytorch[i] || IsHostWork(op)) continue;
      const LaneId before = std::exchange(current[At(op.issuer)], op.lane);
      enters[i] = before != op.lane && !plan.lanes[At(op.lane)].compute && !op.graph_node;
    }
  }
  recorded = plan::FindEvents(plan).recorded;
  MakeQueues(plan.lanes.size());
  in_graph.assign(count, false);
  awaited_copy.assign(count, false);
  dependents.begin.assign(count + 1, 0);

  std::vector<bool> calling(plan.lanes.size());
  for (const plan::Op& op : ops) calling[At(op.issuer)] = true;
  const bool threads = std::ranges::count(calling, true) > 1;

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
        in_graph[i] = plan[previous].graph_node && op.graph_node;
        awaited_copy[At(previous)] = NatureOf(previous).copy() && !NatureOf(id).copy();
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
    }
  }
}

void CompiledPlan::AddCosts(const hardware::CostModel& model, plan::Host host) {
  for (const plan::Work& work : ops.works()) {
    costs.push_back(model.Cost(work, host));
    // What goes in a call is known of plain CUDA calls.
    inlined.push_back(host == plan::Host::kCpp ? model.InlinedCost(work) : std::nullopt);
    natures.push_back({.site = SiteOf(work),
                       .handoff = std::holds_alternative<plan::HostHandoff>(work),
                       .may_inline = inlined.back().has_value()});
  }
}

void CompiledPlan::MakeQueues(size_t lanes) {
  // An op of a stream is in two queues: its thread's and its own.
  const auto each = [&](const auto& use) {
    for (size_t i = 0; i < ops.size(); ++i) {
      const plan::Op& op = ops[i];
      use(At(op.issuer), i);
      if (!IsHostWork(op)) use(At(op.lane), i);
    }
  };
  queue.begin.assign(lanes + 1, 0);
  each([&](size_t lane, size_t /*op*/) { ++queue.begin[lane + 1]; });
  for (size_t lane = 0; lane < lanes; ++lane) queue.begin[lane + 1] += queue.begin[lane];
  queue.ids.resize(queue.begin[lanes]);
  std::vector<uint32_t> fill(queue.begin.begin(), queue.begin.end() - 1);
  each([&](size_t lane, size_t op) { queue.ids[fill[lane]++] = OpId{static_cast<int32_t>(op)}; });
}

}  // namespace stallcast::sim
