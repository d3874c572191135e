// What the engine asks of a plan over and over, looked up once for all of its runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/hardware/cost_model.h"
#include "models/plan/plan.h"

namespace stallcast::sim {

/// Which of the machine's gaps lies before an op.
enum class Gap : uint8_t { kNone, kKernel, kCopy, kFlag, kCopies, kToHost, kToDevice, kGraph };

/// What it takes, ps.
inline int64_t Time(Gap gap, const hardware::Latencies& latency) {
  switch (gap) {
    case Gap::kNone:
      return 0;
    case Gap::kKernel:
      return latency.gap.count();
    case Gap::kCopy:
      return latency.copy_gap.count();
    case Gap::kFlag:
      return latency.flag_gap.count();
    case Gap::kCopies:
      return latency.between_copies.count();
    case Gap::kToHost:
      return latency.to_host_gap.count();
    case Gap::kToDevice:
      return latency.to_device_gap.count();
    case Gap::kGraph:
      return latency.graph_gap.count();
  }
  return 0;
}

/// Lists of op ids by op, flat.
struct OpLists {
  std::vector<uint32_t> begin;
  std::vector<plan::OpId> ids;
  std::span<const plan::OpId> operator[](size_t i) const {
    return {ids.data() + begin[i], begin[i + 1] - begin[i]};
  }
};

/// A plan's costs on a machine, and what follows from the order of its ops. The plan must outlive
/// it.
struct CompiledPlan {
  /// What the engine asks of a work.
  struct Nature {
    bool copy = false, host_sync = false, handoff = false;
    bool may_inline = false;  ///< has a cost of its own where the stream is idle
  };

  CompiledPlan(const plan::Plan& plan, const hardware::CostModel& model);
  const hardware::OpCost& Cost(plan::OpId id) const { return costs[ops.WorkOf(At(id))]; }
  /// Where the stream is idle; none: the same.
  const std::optional<hardware::OpCost>& Inlined(plan::OpId id) const {
    return inlined[ops.WorkOf(At(id))];
  }
  const Nature& NatureOf(plan::OpId id) const { return natures[ops.WorkOf(At(id))]; }

  const plan::OpTable& ops;
  std::vector<hardware::OpCost> costs;                   ///< by distinct work
  std::vector<std::optional<hardware::OpCost>> inlined;  ///< by distinct work
  std::vector<Nature> natures;                           ///< by distinct work
  std::vector<Gap> gap;            ///< by op: between the lane's previous op and this one
  std::vector<bool> recorded;      ///< by op: an event is recorded behind it
  std::vector<bool> awaited_copy;  ///< by op: a copy that its lane's next op, a kernel, follows
  OpLists dependents;              ///< by op: those that wait for it
  OpLists called_first;     ///< by op: those of other threads whose calls come before its call
  bool calls_meet = false;  ///< several threads call, and slow one another down
};

}  // namespace stallcast::sim
