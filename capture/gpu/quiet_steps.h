// Step times of several runs, from those in which no other program used the calling threads' cores.
#pragma once

#include <chrono>
#include <vector>

#include "capture/calibrate/timing/quiet_samples.h"
#include "kernels/executor/executor.h"
#include "kernels/runtime/host_cores.h"
#include "traces/common/units.h"

namespace stallcast::capture {

/// How often a plan runs: as often as is wanted. While other programs disturb it, up to three times
/// as often, for at most 5 s.
class Repetitions {
 public:
  explicit Repetitions(int wanted) : wanted_(wanted) {}
  bool WantMore(int runs, bool disturbed) const {
    return runs < wanted_ || (disturbed && runs < 3 * wanted_ &&
                              std::chrono::steady_clock::now() - begin_ < std::chrono::seconds(5));
  }

 private:
  const int wanted_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Steps of several runs of a plan. A step counts as disturbed if kernels::CoreLoad() at its begin
/// or end means a shared core, as `seen` judges. Calls then take 1.35 times as long, and it may
/// change within a tenth of a second. The time of a step never decides whether it counts.
class QuietSteps {
 public:
  /// Adds to `seen`, which must outlive it. Loads of other plans' runs in it reveal a run that was
  /// disturbed all along.
  explicit QuietSteps(kernels::CoreLoadSampler& seen) : seen_(seen) {}
  /// Adds the steps of a run; all runs have equally many.
  void Add(const std::vector<kernels::RanStep>& run);
  int runs() const { return steps_.empty() ? 0 : steps_.front().size(); }
  /// Over all steps, the least number of runs in which a step was undisturbed.
  int Fewest() const;
  /// Number of steps that were disturbed in every run.
  int Disturbed() const;
  /// By step, over its undisturbed runs; over all runs if it has none.
  std::vector<Picoseconds> Medians() const;

 private:
  std::vector<QuietSamples<Picoseconds>> steps_;
  kernels::CoreLoadSampler& seen_;
};

}  // namespace stallcast::capture
