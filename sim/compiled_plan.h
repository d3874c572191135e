// What the engine asks of a plan over and over, looked up once for all of its runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/hardware/cost_model.h"
#include "models/hardware/handoff.h"
#include "models/plan/plan.h"

namespace stallcast::sim {

/// Lists of op ids by op or lane, flat.
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
    hardware::Site site = hardware::Site::kKernel;
    bool handoff = false;
    bool may_inline = false;  ///< has a cost of its own where the stream is idle
    bool copy() const { return site == hardware::Site::kH2D || site == hardware::Site::kD2H; }
  };

  CompiledPlan(const plan::Plan& plan, const hardware::CostModel& model);
  const hardware::OpCost& Cost(plan::OpId id) const { return costs[ops.WorkOf(At(id))]; }
  /// Where the stream is idle; none: the same.
  const std::optional<hardware::OpCost>& Inlined(plan::OpId id) const {
    return inlined[ops.WorkOf(At(id))];
  }
  const Nature& NatureOf(plan::OpId id) const { return natures[ops.WorkOf(At(id))]; }

 private:
  void MakeQueues(size_t lanes);

 public:
  const plan::OpTable& ops;
  std::vector<hardware::OpCost> costs;                   ///< by distinct work
  std::vector<std::optional<hardware::OpCost>> inlined;  ///< by distinct work
  std::vector<Nature> natures;                           ///< by distinct work
  std::vector<bool> in_graph;      ///< by op: it and the op before it on its lane are nodes
  std::vector<bool> recorded;      ///< by op: an event is recorded behind it
  std::vector<bool> awaited_copy;  ///< by op: a copy that its lane's next op, a kernel, follows
  OpLists dependents;              ///< by op: those that wait for it
  OpLists queue;         ///< by lane: what a thread calls and does, or a stream's ops, in order
  OpLists called_first;  ///< by op: those of other threads whose calls come before its call
};

}  // namespace stallcast::sim
