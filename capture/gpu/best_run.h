// The most typical of several runs of a plan.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "capture/gpu/quiet_steps.h"
#include "kernels/executor/executor.h"
#include "kernels/runtime/host_cores.h"
#include "traces/common/units.h"

namespace stallcast::capture {

/// Finds the run with the fewest disturbed steps (QuietSteps), and of several the fastest. A single
/// run is needed where it is compared op by op, since ops have no common median.
class BestRun {
 public:
  /// Wants `runs` runs, and more while the best is disturbed (Repetitions). Adds to `seen`, which
  /// must outlive it.
  BestRun(kernels::CoreLoadSampler& seen, int runs) : seen_(seen), repetitions_(runs) {}
  /// Adds a run; true if it is the best so far.
  bool Add(const std::vector<kernels::RanStep>& run);
  bool WantsMore() const { return repetitions_.WantMore(runs_, disturbed() > 0); }
  /// Disturbed steps of the best run so far.
  int disturbed() const { return best_.first; }

 private:
  kernels::CoreLoadSampler& seen_;
  const Repetitions repetitions_;
  int runs_ = 0;
  std::pair<int, Picoseconds> best_{std::numeric_limits<int>::max(), 0};  // disturbed, took
};

}  // namespace stallcast::capture
