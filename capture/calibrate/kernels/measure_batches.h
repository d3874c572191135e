// What the copies of a batch (cudaMemcpyBatchAsync) cost.
#pragma once

#include <vector>

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/layer_pages.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Batches of pieces as layers recall them (kernels::BatchedCopy), on the calling thread's core,
/// which takes longer for them at one moment than at another: time them at several.
class Batches {
 public:
  Batches();

  /// Times all sizes once.
  void Measure(Stopwatch& watch, LayerPages& pages);
  /// Fills in batch.*, host.batch_call and copy.inline_below from the medians of what has been
  /// timed: once at least. Takes link.h2d from the profile.
  void Set(hardware::Profile& profile) const;

 private:
  /// Of pieces of one size: what each adds to the call and to the whole, which is over when they
  /// are copied, and what the call takes beside them, s, by moment.
  struct Times {
    double bytes = 0;
    std::vector<double> in_call{}, in_all{}, call{};
  };
  std::vector<Times> times_;
};

}  // namespace stallcast::capture
