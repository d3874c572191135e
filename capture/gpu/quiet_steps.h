// What steps take where no other program has the calling threads' cores, from several runs.
#pragma once

#include <chrono>
#include <vector>

#include "capture/calibrate/quiet_samples.h"
#include "kernels/executor/executor.h"
#include "kernels/runtime/host_cores.h"
#include "traces/common/units.h"

namespace stallcast::capture {

/// How often a plan runs: as often as is wanted, and while others disturb it three times as often
/// at most, until it has been run for 5 s.
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

/// Steps as several runs of a plan had them. A step of a run was disturbed where
/// kernels::CoreLoad() at its begin or its end tells of a neighbour, as `seen` judges: whether
/// another program has a core's other hyperthread changes within a tenth of a second, and
/// calls take 1.35 times as long meanwhile. Nothing that a step took decides whether it counts.
class QuietSteps {
 public:
  /// Adds to `seen`, which must outlive it: one that has seen other plans' runs too knows a run
  /// that was disturbed all along.
  explicit QuietSteps(kernels::CoreLoadSampler& seen) : seen_(seen) {}
  /// A run's steps, as many as any run's.
  void Add(const std::vector<kernels::RanStep>& run);
  int runs() const { return steps_.empty() ? 0 : steps_.front().size(); }
  /// In how many runs the step was undisturbed that was so in fewest.
  int Fewest() const;
  /// How many steps no run had undisturbed.
  int Disturbed() const;
  /// By step, over the runs in which it was undisturbed, or over all where there are none.
  std::vector<Picoseconds> Medians() const;

 private:
  std::vector<QuietSamples<Picoseconds>> steps_;
  kernels::CoreLoadSampler& seen_;
};

}  // namespace stallcast::capture
