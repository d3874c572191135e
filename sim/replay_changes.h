// What changes do to the plan of a recording. Internal to sim/replay.cc.
#pragma once

#include "sim/replay_plan.h"

namespace stallcast::sim {

/// The plan with `change` applied; gives how many ops it matched. Error: it matches nothing.
int64_t Apply(const ReplayChange& change, ReplayPlan* plan);

/// The op takes no time, waits for nothing and is not drawn.
void RemoveOp(ReplayOp* op);

}  // namespace stallcast::sim
