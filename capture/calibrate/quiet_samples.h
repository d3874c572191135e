// Times of the same work of which those count that no other program disturbed.
#pragma once

#include <utility>
#include <vector>

#include "kernels/host_cores.h"
#include "traces/common/median.h"

namespace stallcast::capture {

/// Each with the kernels::CoreLoad() around it. Nothing that was timed decides whether it counts.
template <class T>
class QuietSamples {
 public:
  void Add(T time, double core_load) { all_.push_back({time, core_load}); }
  int size() const { return static_cast<int>(all_.size()); }
  /// How many were undisturbed, as `seen` judges.
  int Quiet(const kernels::SeenLoads& seen) const {
    return static_cast<int>(Undisturbed(seen).size());
  }
  /// Of the undisturbed, or of all where there are none.
  T Median(const kernels::SeenLoads& seen) const {
    std::vector<T> times = Undisturbed(seen);
    if (times.empty()) {
      for (const Sample& sample : all_) times.push_back(sample.time);
    }
    return stallcast::Median(std::move(times));
  }

 private:
  struct Sample {
    T time;
    double core_load;
  };

  std::vector<T> Undisturbed(const kernels::SeenLoads& seen) const {
    std::vector<T> times;
    for (const Sample& sample : all_) {
      if (!seen.IsShared(sample.core_load)) times.push_back(sample.time);
    }
    return times;
  }

  std::vector<Sample> all_;
};

}  // namespace stallcast::capture
