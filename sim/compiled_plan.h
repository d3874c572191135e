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
  const hardware::OpCost& Cost(plan::OpId id) const { return costs[Row(id)]; }
  /// Where the stream is idle; none: the same.
  const std::optional<hardware::OpCost>& Inlined(plan::OpId id) const { return inlined[Row(id)]; }
  const Nature& NatureOf(plan::OpId id) const { return natures[Row(id)]; }

 private:
  void AddCosts(const hardware::CostModel& model, plan::Host host);
  void MakeQueues(size_t lanes);
  size_t Row(plan::OpId id) const {
    const size_t work = ops.WorkOf(At(id));
    return from_pytorch.empty() || !from_pytorch[At(id)] ? work : work + ops.works().size();
  }

 public:
  const plan::OpTable& ops;
  /// By distinct work as C++ issues it, then all as PyTorch does if any is.
  std::vector<hardware::OpCost> costs;
  std::vector<std::optional<hardware::OpCost>> inlined;
  std::vector<Nature> natures;
  std::vector<bool> from_pytorch;  ///< by op; empty: none
  std::vector<bool> enters;        ///< by op: its issuer changes PyTorch's current stream for it
  std::vector<bool> in_graph;      ///< by op: it and the op before it on its lane are nodes
  std::vector<bool> recorded;      ///< by op: an event is recorded behind it
  std::vector<bool> awaited_copy;  ///< by op: a copy that its lane's next op, a kernel, follows
  OpLists dependents;              ///< by op: those that wait for it
  OpLists queue;         ///< by lane: what a thread calls and does, or a stream's ops, in order
  OpLists called_first;  ///< by op: those of other threads whose calls come before its call
};

}  // namespace stallcast::sim
