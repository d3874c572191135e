// Of several runs of a plan, the one that tells most of it.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "capture/gpu/quiet_steps.h"
#include "kernels/executor/executor.h"
#include "kernels/runtime/host_cores.h"
#include "traces/common/units.h"

namespace stallcast::capture {

/// Finds the run that others disturbed in the fewest steps, as QuietSteps has it, of such the
/// quickest: where a run is looked at op by op no median can be taken.
class BestRun {
 public:
  /// Wants so many runs, and more, as Repetitions has it, while the best is disturbed. Adds to
  /// `seen`, which must outlive it.
  BestRun(kernels::CoreLoadSampler& seen, int runs) : seen_(seen), repetitions_(runs) {}
  /// Whether this one is the best so far.
  bool Add(const std::vector<kernels::RanStep>& run);
  bool WantsMore() const { return repetitions_.WantMore(runs_, disturbed() > 0); }
  /// Steps of the best one, of those that have been added.
  int disturbed() const { return best_.first; }

 private:
  kernels::CoreLoadSampler& seen_;
  const Repetitions repetitions_;
  int runs_ = 0;
  std::pair<int, Picoseconds> best_{std::numeric_limits<int>::max(), 0};  // disturbed, took
};

}  // namespace stallcast::capture
