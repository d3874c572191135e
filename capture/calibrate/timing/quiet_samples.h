// Times of the same work of which those count that no other program disturbed.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/runtime/host_cores.h"
#include "traces/common/median.h"

namespace stallcast::capture {

/// Each with the kernels::CoreLoad() around it. Nothing that was timed decides whether it counts.
template <class T>
class QuietSamples {
 public:
  void Add(T time, double core_load) { all_.push_back({time, core_load}); }
  int size() const { return static_cast<int>(all_.size()); }
  /// How many were undisturbed, as `seen` judges.
  int Quiet(const kernels::CoreLoadSampler& seen) const {
    return static_cast<int>(std::ranges::count_if(
        all_, [&](const Sample& of) { return !seen.IsShared(of.core_load); }));
  }
  /// The undisturbed, or all where there are none.
  std::vector<T> Times(const kernels::CoreLoadSampler& seen) const {
    const bool none = Quiet(seen) == 0;
    std::vector<T> times;
    for (const Sample& sample : all_) {
      if (none || !seen.IsShared(sample.core_load)) times.push_back(sample.time);
    }
    return times;
  }
  T Median(const kernels::CoreLoadSampler& seen) const { return stallcast::Median(Times(seen)); }

 private:
  struct Sample {
    T time;
    double core_load;
  };

  std::vector<Sample> all_;
};

}  // namespace stallcast::capture
